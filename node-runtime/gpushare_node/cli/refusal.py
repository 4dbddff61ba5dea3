"""Refusal: a policy that cannot be followed is told to the cluster too, as far as that goes, before the command ends."""

import logging
import os

from gpushare_node.apply.goal import Goal
from gpushare_node.cli.parts import Api
from gpushare_node.cli.reading import PolicyFileError, read_policy
from gpushare_node.cli.run import Run
from gpushare_node.kube.cluster import ClusterError
from gpushare_node.voice.reasons import Reason

_LOG = logging.getLogger("gpushare")


def read_or_report(run: Run) -> Goal:
    """The policy. PolicyFileError, after the node's condition was set to PolicyInvalid where this is a pod."""
    try:
        given = read_policy(run.arguments.policy)
    except PolicyFileError as error:
        if os.environ.get("NODE_NAME") and not run.arguments.standalone:
            _report(run, str(error))
        raise
    run.log.pool = given.policy.pool
    return given


def _report(run: Run, message: str) -> None:
    try:
        Api.find(run, "").server.set_condition(Reason.POLICY_INVALID, message)
    except ClusterError as error:
        _LOG.warning("the node's condition could not be set: %s", error)
