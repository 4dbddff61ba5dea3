"""Refusal: handles a policy that cannot be read, or not completely: what is reported, and which caps apply meanwhile."""

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.cli.run import PolicyFileError, Run, read_policy
from gpushare_node.cli.wiring import EnforcerFactory, NodeApi, folder, selection, tenancy_file
from gpushare_node.contract.policy import read
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.strict_document import PolicyError
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.membership import Standing, is_requested
from gpushare_node.reporting.outcome import join_first
from gpushare_node.vendors.driver import DriverError

if TYPE_CHECKING:
    from gpushare_node.enforce.enforcer import Enforcer

_LOOK_SECONDS = 15
_LEAVING_SECONDS = 60
"""How often a run that holds asks the API server whether its node must leave: well within an uninstall Job's timeout."""

_MAX_SHOWN = 5
_LOG = logging.getLogger("gpushare")


def read_or_report(run: Run) -> DesiredPolicy:
    """Return the policy. PolicyFileError if it cannot be read; in a pod, first sets the node's condition to PolicyInvalid."""
    try:
        given = read_policy(run.arguments.policy)
    except PolicyFileError as error:
        if os.environ.get("NODE_NAME") and not run.arguments.standalone:
            # No policy names the pool: this pod does, `gpushare-<pool>-<suffix>`.
            pool = os.environ.get("POD_NAME", "").removeprefix("gpushare-").rpartition("-")[0]
            try:
                NodeApi.find(run, pool).server.set_condition(ConditionReason.POLICY_INVALID, str(error))
            except ClusterError as trouble:
                _LOG.warning("the node's condition could not be set: %s", trouble)
        raise
    run.log.pool = given.policy.pool
    if given.policy.ignored:
        _LOG.warning("%s", describe_ignored(given))
    return given


def read_or_hold(run: Run) -> DesiredPolicy:
    """Return the policy as soon as it can be read; until then enforce the caps of the policy in force.

    If the node must leave, return the policy in force, because leaving needs no other. PolicyFileError if no policy is in
    force. Stopped if a signal stops the program.
    """
    try:
        return read_or_report(run)
    except PolicyFileError as error:
        former = find_former(run)
        if former is None:
            raise
        _LOG.error("%s; the previous policy stays in force", error)
    enforcer: Enforcer | None = None
    api = NodeApi.find(run, former.policy.pool)
    api.start()
    enforcers = EnforcerFactory(run=run, api=api, tenants=tenancy_file(run))
    refused, asked_at = Refused(run), float("-inf")
    try:
        while not refused.is_over():
            if run.clock.now() - asked_at >= _LEAVING_SECONDS:
                asked_at = run.clock.now()
                if _must_leave(run, api, former.policy.pool):
                    return former
            with suppress(DriverError):
                enforcer = enforcer or enforcers.open(former.policy, former.digest)
            if enforcer is not None:
                enforcer.cycle()
            run.clock.sleep(1.0)
        return read_or_report(run)
    finally:
        if enforcer is not None:
            enforcer.close()
        api.events.drain()


class Refused:
    """A policy that could not be read. It may become readable, because kubelet updates a ConfigMap's files in running pods."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._looked_at = run.clock.now()

    def is_over(self) -> bool:
        """Whether the policy can be read now. Reads the file at most every 15 s, however often this is called."""
        if self._run.clock.now() - self._looked_at < _LOOK_SECONDS:
            return False
        self._looked_at = self._run.clock.now()
        try:
            read_policy(self._run.arguments.policy)
        except PolicyFileError:
            return False
        return True


def _must_leave(run: Run, api: NodeApi, pool: str) -> bool:
    try:
        node = api.server.node()
        return is_requested(node) or selection(run, api, api.server.pods, pool).find(node) is Standing.LEAVES
    except (ClusterError, StateDirError):
        return False


def find_former(run: Run) -> DesiredPolicy | None:
    """Return the policy in force; None if there is none, or it cannot be read."""
    text = folder(run).policy()
    with suppress(PolicyError):
        return None if text is None else DesiredPolicy(text=text, policy=read(text))
    return None


def describe_ignored(given: DesiredPolicy) -> str:
    """Return which fields of the policy this runtime does not know, and what to do; empty if it knows all."""
    fields = given.policy.ignored
    names = join_first(fields, _MAX_SHOWN)
    return f"This runtime ignores the unknown fields {names}: use the image of the bundle's version." if fields else ""
