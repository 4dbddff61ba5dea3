"""Wiring of a policy that only observes: what `apply` does then, and what publishes for `enforce`."""

import json
import logging
from contextlib import suppress
from functools import partial

from gpushare_node.adapters.kube.cluster import Cluster, ClusterError, NodeView, PodView
from gpushare_node.adapters.kube.node_client import ObservedNode
from gpushare_node.cli.run import Exit, Printer, Run
from gpushare_node.cli.wiring import EnforcerFactory, NodeApi, backend_of, open_driver
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.gpus.driver_handle import DriverHandle
from gpushare_node.reconcile.observation import Observation, Observer, Trouble, observe, unreadable
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import DriverError, GpuInfo

_LOOK_SECONDS = 10.0
"""How long the init container waits for a driver that hangs: it must not keep the pod from starting."""

_LOG = logging.getLogger("gpushare")


def report_only(run: Run, policy: Policy, printer: Printer) -> int:
    """Look once, publish what `enforce` would do, and return 0: also if the driver or the API server does not answer."""
    surveys, trouble = _survey(run, policy)
    try:
        api = None if run.arguments.standalone else NodeApi.find(run, policy.pool)
        found = _publish(policy, api, None, surveys, trouble) if api else _without_node(policy, surveys, trouble)
    except ClusterError as error:
        _LOG.warning("the node's status could not be updated: %s", error)
        found = _without_node(policy, surveys, trouble)
    reason = trouble[0] if trouble else ConditionReason.OBSERVING
    printer.end(
        run.node,
        "apply",
        {
            "reason": reason.word,
            "usable": True,
            "would": json.loads(found.would),
            "message": f"{reason.word}: {found.message}",
        },
    )
    return Exit.DONE


def observer(enforcer: Enforcer, policy: Policy, api: NodeApi, enforcers: EnforcerFactory) -> Observer:
    """Return what takes the place of the monitor."""

    def publish(surveys: tuple[GpuInfo, ...], trouble: Trouble) -> None:
        _publish(policy, api, enforcers, surveys, trouble)

    return Observer(enforcer=enforcer, publish=publish)


def _survey(run: Run, policy: Policy) -> tuple[tuple[GpuInfo, ...], Trouble]:
    """Return the GPUs, or why they cannot be read now. Does not wait for a driver that is not there yet."""
    bounded = BoundedDriver(partial(open_driver, policy, reads_only=True), clock=run.clock, deadline_seconds=_LOOK_SECONDS)
    handle = DriverHandle(bounded.open, run.clock)
    try:
        reason = handle.wait(0.0, lambda _: None, run.clock.sleep)
        if reason is None:
            return handle.driver.survey(), None
    except DriverError as error:
        return (), (ConditionReason.WAITING_FOR_DRIVER, str(error))
    finally:
        handle.close()
    return (), (reason, reason.value.means)


def _publish(
    policy: Policy, api: NodeApi, enforcers: EnforcerFactory | None, surveys: tuple[GpuInfo, ...], trouble: Trouble
) -> Observation:
    """Write the condition and the annotation, and return them. ClusterError."""
    own = ObservedNode(connection=api.connection, identity=api.identity)
    node = own.node()
    pods: tuple[PodView, ...] | None = None
    with suppress(ClusterError):
        followed = None if enforcers is None else enforcers.followed()
        pods = own.pods() if followed is None else followed
    found = _observe(policy, surveys, node, pods, trouble)
    message = f"{trouble[1]} {found.message}" if trouble and surveys else found.message
    own.publish(trouble[0] if trouble else ConditionReason.OBSERVING, message, found.would)
    return found


def _without_node(policy: Policy, surveys: tuple[GpuInfo, ...], trouble: Trouble) -> Observation:
    return _observe(policy, surveys, Cluster().node(), None, trouble)


def _observe(
    policy: Policy, surveys: tuple[GpuInfo, ...], node: NodeView, pods: tuple[PodView, ...] | None, trouble: Trouble
) -> Observation:
    if not surveys:
        return unreadable(policy, trouble[1] if trouble else "The driver lists no GPU.")
    return observe(policy, surveys, node, pods, backend_of(policy))
