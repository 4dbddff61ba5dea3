"""`enforce`: enforces the containers' caps until it is stopped. Wires the loop; never changes hardware."""

import logging
from collections.abc import Mapping
from functools import partial

from gpushare_node import __version__
from gpushare_node.adapters.host.programs import boot_id
from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.informers import NodeInformer
from gpushare_node.cli import observing
from gpushare_node.cli.refusal import Refused, describe_ignored, find_former, read_or_report
from gpushare_node.cli.run import Exit, PolicyFileError, Run
from gpushare_node.cli.wiring import EnforcerFactory, NodeApi, folder, tenancy_file
from gpushare_node.contract.policy import Policy
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.enforce.exemptions import FollowedNode
from gpushare_node.enforce.http import HttpServer
from gpushare_node.enforce.loop import Loop, Monitor
from gpushare_node.enforce.node_monitor import NodeMonitor
from gpushare_node.gpus.view import build_view
from gpushare_node.membership import desired
from gpushare_node.partition.plan import PartitionPlan

_LOG = logging.getLogger("gpushare")


def enforce(run: Run) -> int:
    """Return 0 if it was stopped, 70 if only a restart helps; with `--once`, 69 if the driver did not answer."""
    arguments = run.arguments
    given, refusal = _read(run)
    api = None if arguments.standalone else NodeApi.find(run, given.policy.pool)
    run.install_signal_handlers()
    observes = given.policy.observes
    followed_node = None if api is None or arguments.once or observes else FollowedNode()
    enforcers = EnforcerFactory(
        run=run, api=api, tenants=tenancy_file(run), dry_run=arguments.dry_run, interval_seconds=arguments.interval
    )
    enforcer = enforcers.open(given.policy, given.digest, followed_node)
    enforcer.metrics.build.set(1, __version__, "", "")
    if enforcer.config.rights.profile is not None:
        _LOG.warning("the profile %s confines the runtime: signals may be blocked", enforcer.config.rights.profile)
    monitor: Monitor | None = None
    if api is not None and not arguments.once:
        if observes:
            monitor = observing.observer(enforcer, given.policy, api, enforcers)
        else:
            monitor = _upkeep(run, given, enforcer, api, refusal)
    loop = Loop(enforcer=enforcer, monitor=monitor, clock=run.clock)
    if refusal:
        loop.is_outdated = partial(_is_outdated, Refused(run), api)
    if api is not None and not observes:
        api.start()
    if api is not None and isinstance(monitor, NodeMonitor) and followed_node is not None:
        followed_node.node = NodeInformer(api.connection, api.identity.node, run.clock, monitor.trigger)
        followed_node.node.start()
    if arguments.once:
        loop.step()
        has_read, _ = loop.readiness()
        loop.enforcer.close()
        return Exit.DONE if has_read else Exit.UNAVAILABLE
    pages = HttpServer(loop.pages(), port=arguments.port)
    pages.start()
    _LOG.info("%s the caps of pool %s", "comparing usage with" if observes else "enforcing", given.policy.pool)
    try:
        return loop.run()
    finally:
        pages.shutdown()
        if isinstance(monitor, NodeMonitor):
            monitor.let_go()
        if api is not None and not observes:
            api.events.drain()


def _read(run: Run) -> tuple[DesiredPolicy, str]:
    """Return the policy; if it cannot be read, the policy in force, and why."""
    try:
        return read_or_report(run), ""
    except PolicyFileError as error:
        former = find_former(run)
        if former is None or run.arguments.once:
            raise
        _LOG.error("%s; the previous policy stays in force", error)
        return former, str(error)


def _is_outdated(refused: Refused, api: NodeApi | None) -> bool:
    """Whether the policy can be read now, and this pod could be deleted: the new pod runs `apply` first, with that policy."""
    if not refused.is_over():
        return False
    if api is not None:
        try:
            api.server.delete_own_pod()
        except ClusterError as error:
            _LOG.warning("the policy is readable again; this pod cannot be replaced yet: %s", error)
            return False
    return True


def _upkeep(run: Run, given: DesiredPolicy, enforcer: Enforcer, api: NodeApi, refusal: str) -> NodeMonitor:
    """Return the monitor. If the policy is unreadable, labels and layout are unknown: it only detects a leaving node."""
    policy = given.policy
    return NodeMonitor(
        enforcer=enforcer,
        cluster=api.server,
        boot_id=boot_id(),
        refusal=refusal,
        remark=describe_ignored(given),
        labels={} if refusal else _published(policy, folder(run).profile()),
        release_after_seconds=run.arguments.release_after,
        plan=lambda surveys: (
            PartitionPlan(gpus=(), unfit=())
            if refusal
            else build_view(surveys, policy, allocated=frozenset(), pending_modes={}).plan
        ),
    )


def _published(policy: Policy, last: Published | None) -> Mapping[str, str]:
    """Return the labels that `apply` has set for this policy; if it is not known to have set any, none, so none are kept."""
    return {} if last is None or last.key[:-2] != policy.profile else desired(policy, last)
