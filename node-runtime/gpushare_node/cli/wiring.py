"""Wiring: builds the real adapters from the environment and the arguments, chooses the back end, and connects them."""

import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpushare_node import vendors
from gpushare_node.adapters.host.programs import Machine, boot_id, this_machine
from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.host.tenancy import NAME, TenancyFile
from gpushare_node.adapters.kube.cluster import Cluster, ClusterError, PodView
from gpushare_node.adapters.kube.connection import Connection, find_endpoint
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.informers import NodeInformer, PodInformer, SliceInformer
from gpushare_node.adapters.kube.node_client import NodeClient, read_node_slices
from gpushare_node.adapters.kube.pod_identity import PodIdentity, find_identity
from gpushare_node.adapters.kube.slices import SliceView
from gpushare_node.adapters.procs.capabilities import own_rights
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.mps import HostMpsControl
from gpushare_node.adapters.procs.processes import ProcessIdentity
from gpushare_node.backends.backend import Checkpoint, KubeletFiles, NodeBackend
from gpushare_node.backends.device_plugin import DevicePlugin
from gpushare_node.backends.dra.claims import is_served, read_claims
from gpushare_node.backends.dra.offer import DraBackend
from gpushare_node.cli.run import STDIN, Run
from gpushare_node.contract import policy as policies
from gpushare_node.contract.policy import Policy, Vendor
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.contract.tenancy import Tenancy
from gpushare_node.core.clock import Clock
from gpushare_node.gpus.programs import with_programs
from gpushare_node.guard.inputs import DEFAULTS
from gpushare_node.membership import PoolSelection
from gpushare_node.vendors.bounded_driver import LOOK_SECONDS, BoundedDriver
from gpushare_node.vendors.driver import Driver, ignore

if TYPE_CHECKING:
    from gpushare_node.enforce.enforcer import Enforcer
    from gpushare_node.enforce.exemptions import FollowedNode
    from gpushare_node.enforce.inventory import Pods as SomePods
    from gpushare_node.enforce.metrics import EnforcementMetrics


_POLICY = "/etc/gpushare/policy.yaml"
"""Where the chart mounts the policy: `release`, which takes no policy, reads the tenancy file next to it."""


def backend_of(policy: Policy | None, api: "NodeApi | None" = None, clock: Clock | None = None) -> NodeBackend:
    """Return the back end of the policy's pool; without a policy, device plugins.

    Slices are read by way of `api`. With a `clock` they are watched from the first time on, as for a program that stays.
    """
    chosen = policies.Backend.DEVICE_PLUGIN if policy is None else policy.backend
    files = KubeletFiles(
        read_devices=DevicePlugin().read_checkpoint,
        read_claims=partial(read_claims, policy),
        needs_claims=chosen.has_claims,
    )
    return _BACKENDS[chosen](policy, files.read_checkpoint, api, clock)


def is_driver_served(driver: str) -> bool:
    """Return whether a program serves this DRA driver on the host, or may."""
    return is_served(driver)


def _open_plugin(
    _policy: Policy | None, read_checkpoint: Callable[[], Checkpoint], _api: "NodeApi | None", _clock: Clock | None
) -> NodeBackend:
    return DevicePlugin(read_checkpoint=read_checkpoint)


def _open_dra(
    policy: Policy | None, read_checkpoint: Callable[[], Checkpoint], api: "NodeApi | None", clock: Clock | None
) -> NodeBackend:
    assert policy is not None  # noqa: S101 - it says so
    if api is None:
        return DraBackend(policy=policy, read_checkpoint=read_checkpoint)
    node, driver = api.identity.node, vendors.of(policy.vendor).dra_driver
    read_slices: Callable[[], tuple[SliceView, ...]] = partial(read_node_slices, api.connection, node, driver)
    if clock is not None:
        read_slices = WatchedSlices(SliceInformer(api.connection, node, driver, clock), read_slices).read
    return DraBackend(policy=policy, read_checkpoint=read_checkpoint, node=node, read_slices=read_slices)


_BACKENDS = {policies.Backend.DEVICE_PLUGIN: _open_plugin, policies.Backend.DRA: _open_dra}


def vendor_of(policy: Policy | None) -> Vendor:
    """Return the vendor of the policy's GPUs; without a policy, that of the host's."""
    return vendors.on_this_host() if policy is None else policy.vendor


def open_driver(policy: Policy | None, metrics: "EnforcementMetrics | None" = None, *, reads_only: bool = False) -> Driver:
    """Open a new session with the driver, with its calls counted in the metrics. DriverError while there is no driver.

    `reads_only`: the session makes no call that may change a GPU.
    """
    observe = ignore if metrics is None else metrics.observe_call
    return vendors.open_driver(vendor_of(policy), observe, pid_max=LinuxProcesses().pid_max(), reads_only=reads_only)


def bounded_driver(run: Run, policy: Policy | None) -> Callable[[], Driver]:
    """Return a function that opens sessions, for one caller at a time, whose calls never hang: they raise TIMEOUT instead."""
    return BoundedDriver(partial(open_driver, policy), clock=run.clock, deadline_seconds=LOOK_SECONDS).open


def tenancy_file(run: Run) -> TenancyFile:
    """Return the tenancy file, which the chart projects next to the policy. Without an API server no pod or tenant is known."""
    arguments = run.arguments
    name = getattr(arguments, "policy", _POLICY)
    is_alone = arguments.standalone or name == STDIN
    return TenancyFile(None if is_alone else Path(name).with_name(NAME), find_identity(os.environ, "").namespace)


def folder(run: Run) -> StateDir:
    """Return the folder that outlives the pod."""
    return StateDir(Path(run.arguments.state_dir))


class NodeApi(Struct):
    """The API server for one run: client, identity and Events in the background. ClusterError if its address is not set."""

    connection: Connection
    identity: PodIdentity
    server: NodeClient
    events: EventRecorder

    @classmethod
    def find(cls, run: Run, pool: str) -> "NodeApi":
        """Return the API server that the environment describes. Sends nothing yet."""
        connection = Connection(find_endpoint(os.environ), run.clock)
        identity = find_identity(os.environ, pool)
        events = EventRecorder(connection, identity, run.clock)
        server = NodeClient(connection, identity, run.clock, events, folder(run))
        return cls(connection=connection, identity=identity, server=server, events=events)

    def start(self) -> None:
        """Send Events as they are queued, until the program ends."""
        threading.Thread(target=self.events.run, name="events", daemon=True).start()


class WatchedSlices:
    """The node's ResourceSlices by a watch, which the first call starts; without an open one they are read each time."""

    def __init__(self, watch: SliceInformer, read: Callable[[], tuple[SliceView, ...]]) -> None:
        self._watch = watch
        self._read = read
        self._has_started = False

    def read(self) -> tuple[SliceView, ...]:
        """Return the slices. ClusterError."""
        if not self._has_started:
            self._has_started = True
            self._watch.start()
        found = self._watch.slices()
        return self._read() if found is None else found


class NoPods:
    """The pods without an API server: none is known, so no cap is enforced."""

    age_seconds = float("inf")

    def pods(self) -> tuple[PodView, ...]:
        """Return no pods."""
        return ()


def selection(run: Run, api: NodeApi, pods: Callable[[], Iterable[PodView]], pool: str) -> PoolSelection:
    """Return whether the pool keeps this node."""
    return PoolSelection(
        cluster=api.server,
        pods=pods,
        folder=folder(run),
        clock=run.clock,
        boot_id=boot_id(),
        pool=pool,
        release_after_seconds=run.arguments.release_after,
    )


class News(Struct, frozen=False):
    """Whether this node has changed, for a run that waits. The first call of `has_changed` starts the informer."""

    api: NodeApi
    clock: Clock
    _is_triggered: threading.Event = field(default_factory=threading.Event)
    _node: NodeInformer | None = None

    def has_changed(self) -> bool:
        """Whether the node may have changed since the last call. Without an open watch this is always true."""
        if self._node is None:
            self._node = NodeInformer(self.api.connection, self.api.identity.node, self.clock, self._is_triggered.set)
            self._node.start()
        if self._node.watching.age_seconds > 0:
            return True
        if not self._is_triggered.is_set():
            return False
        self._is_triggered.clear()
        return True


class EnforcerFactory(Struct, frozen=False):
    """Opens enforcers for one run. The first one starts the pod informer."""

    run: Run
    api: NodeApi | None
    tenants: TenancyFile
    dry_run: bool = False
    interval_seconds: float = DEFAULTS.interval_seconds
    _pods: PodInformer | None = None

    def open(self, policy: Policy, digest: str, followed_node: "FollowedNode | None" = None) -> "Enforcer":
        """Return an enforcer for this policy, with its own session with the driver."""
        # Not imported at the top: a node that matches already boots without enforcing caps.
        from gpushare_node.enforce.enforcer import Adapters, Enforcer, EnforcerConfig  # noqa: PLC0415
        from gpushare_node.enforce.metrics import EnforcementMetrics  # noqa: PLC0415
        from gpushare_node.reporting.metrics import Registry  # noqa: PLC0415

        run, metrics = self.run, EnforcementMetrics(Registry())
        if self.api is not None:
            self.api.connection.observe = metrics.observe_request
            self.api.connection.observe_denial = metrics.api_denials.add
        processes = LinuxProcesses()
        pods = self._follow_pods()
        adapters = Adapters(
            driver=BoundedDriver(lambda: open_driver(policy, metrics, reads_only=policy.observes), clock=run.clock),
            processes=processes,
            pods=pods,
            # Tenants' pods get no Event from a runtime that only observes.
            cluster=Cluster() if policy.observes else as_cluster(self.api),
            folder=folder(run),
            clock=run.clock,
            tenants=self.tenants,
            backend=backend_of(policy, self.api, run.clock),
            followed_node=followed_node,
            is_served=is_driver_served,
            mps=_mps(policy) if policy.mode.has_daemon and not policy.observes else None,
        )
        settings = replace(DEFAULTS, dry_run=self.dry_run or policy.observes, interval_seconds=self.interval_seconds)
        config = EnforcerConfig(policy=policy, policy_digest=digest, node=run.node, settings=settings, rights=own_rights())
        return Enforcer(adapters=adapters, config=config, metrics=metrics)

    def followed(self) -> tuple[PodView, ...] | None:
        """Return the node's pods; None if the list may be out of date. The first call starts the pod informer."""
        pods = self._follow_pods()
        return None if pods.age_seconds > 0 else pods.pods()

    def _follow_pods(self) -> "SomePods":
        if self.api is None:
            return NoPods()
        if self._pods is None:
            self._pods = PodInformer(self.api.connection, self.api.identity.node, self.run.clock)
            self._pods.start()
        return self._pods


def machine(api: NodeApi | None, tenants: TenancyFile, policy: Policy | None) -> Machine:
    """Return this machine. If the API server does not answer, no process in a pod is known to be the platform's."""

    def pods() -> tuple[PodView, ...]:
        try:
            return () if api is None else api.server.pods()
        except ClusterError:
            return ()

    return with_programs(
        this_machine(vendor=vendor_of(policy)),
        LinuxProcesses(),
        pods=pods,
        is_system=lambda seen, known: _is_system(seen, known, tenants.find()),
    )


def _mps(policy: Policy) -> HostMpsControl:
    """Return the MPS control for the work queue's thread, with its own reader of /proc, not shared with the enforcer."""
    return HostMpsControl(LinuxProcesses(), resources={share.resource for share in policy.shares})


def _is_system(seen: ProcessIdentity, pods: Iterable[PodView], tenancy: Tenancy) -> bool:
    """Whether a process belongs to the host, or to a pod of the platform."""
    uids = {candidate.pod_uid for candidate in seen.candidates}
    return not uids or any(pod.namespace in tenancy.platform for pod in pods if uids & set(pod.uids))


def as_cluster(api: NodeApi | None) -> Cluster:
    """Return the API server, or a `Cluster` that has none."""
    return Cluster() if api is None else api.server
