"""EnforcementMetrics: the metrics of enforcement by name, and the snapshot from which the series of containers are made.

The series of containers are computed at each scrape, from the last cycle: a pod that is gone has none. No label contains text
that a tenant can choose freely, except the names of namespace, pod and container.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from gpushare_node import __version__
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import Struct, field
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.guard.process_list import Device, Mps, RejectReason, validate
from gpushare_node.guard.verdicts import CapState, ContainerStatus
from gpushare_node.reporting.metrics import Registry, Sample
from gpushare_node.vendors.driver import GpuInfo, Versions

_PAGE_SECONDS = 1.0
_LAST_KILLS = 32
"""How many containers that lost processes are named: a day's churn must not add series without end."""


class CycleReading(Struct):
    """What one cycle read. `observe` computes the status of every container."""

    observe: Callable[[], list[ContainerStatus]] = list
    devices: tuple[Device, ...] = ()
    pod_index: PodIndex = field(default_factory=PodIndex)


class EnforcementMetrics:
    """All metrics of enforcement. The attributes are the families."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.snapshot = CycleReading()
        self._lock = threading.Lock()
        self._page, self._page_at = "", -math.inf
        self._last_kills: tuple[tuple[str, ...], ...] = ()
        self._make_policy()
        self._make_cycle()
        self._make_kills()
        self._make_rows()
        self._make_containers()

    def observe_call(self, call: str, seconds: float, code: int | None) -> None:
        """Record a call to the driver, as the driver's session reports it. From any thread."""
        self.nvml_seconds.observe(seconds, call)
        if code is not None:
            self.nvml_errors.add(call, str(code))

    def observe_request(self, verb: str, status: int | None) -> None:
        """Record a request to the API server, as the connection reports it. From any thread."""
        self.api_requests.add(verb, "none" if status is None else str(status))

    def describe(self, policy: Policy, digest: str, changed_at: float | None) -> None:
        """Set the metrics of the policy in force. `changed_at` is in seconds since 1970; None: no change is known."""
        action = policy.enforcement.action.value
        self.policy_info.replace([((digest, policy.card.id, policy.mode.value, action), 1)])
        if changed_at is not None:
            self.last_change.set(changed_at)

    def note_kill(self, names: tuple[str, str, str], reason: str) -> None:
        """Keep the namespace, pod and container in which a process was terminated, if they are known."""
        if all(names):
            kept = [kill for kill in self._last_kills if kill != (*names, reason)]
            self._last_kills = (*kept, (*names, reason))[-_LAST_KILLS:]

    def page(self) -> str:
        """Return all metrics in Prometheus format, rendered once a second at most: frequent scrapes must not cost the cycle."""
        with self._lock:
            now = time.monotonic()
            if now - self._page_at >= _PAGE_SECONDS:
                self._page, self._page_at = self.registry.text(), now
            return self._page

    def show(self, versions: Versions, surveys: Iterable[GpuInfo]) -> None:
        """Set the metrics that come from a survey of the GPUs."""
        self.build.replace([((__version__, versions.nvml, versions.driver), 1)])
        found: Counter[tuple[str, ...]] = Counter()
        for survey in surveys:
            names = {} if survey.mig is None else {profile.id: profile.name for profile in survey.mig.profiles}
            for instance in () if survey.mig is None else survey.mig.instances:
                found[survey.uuid, names.get(instance.profile_id) or str(instance.profile_id)] += 1
        self.instances.replace(found.items())

    def _make_policy(self) -> None:
        make = self.registry
        self.policy_info = make.gauge("policy_info", "The policy in force.", "digest", "card", "mode", "action")
        self.last_change = make.gauge(
            "last_change_timestamp_seconds",
            "When the policy in force or what the node offers last changed, in seconds since 1970.",
        )

    def _make_cycle(self) -> None:
        make = self.registry
        self.cycle_seconds = make.histogram("cycle_seconds", "Duration of an enforcement cycle.")
        self.cycles_skipped = make.counter("cycles_skipped_total", "Cycles skipped because the previous one took too long.")
        self.interval_seconds = make.gauge("cycle_interval_seconds", "Current time between two cycles.")
        self.nvml_seconds = make.histogram("nvml_call_seconds", "Duration of calls to the driver.", "call")
        self.nvml_errors = make.counter("nvml_errors_total", "Calls to the driver that failed.", "call", "code")
        self.pods_age = make.gauge("pod_cache_age_seconds", "Age of the list of the node's pods.")
        self.api_requests = make.counter(
            "api_requests_total", "Requests to the API server by method and status; `none`: no answer.", "verb", "code"
        )
        self.api_denials = make.counter(
            "api_denials_total", "Requests that an admission policy of the API server denied, by policy.", "policy"
        )
        self.api_errors = make.counter("api_errors_total", "Requests to the API server that failed.", "op")
        self.events = make.counter("events_total", "Events for the API server, by outcome.", "outcome")
        self.ready = make.gauge("node_condition", "1 for the current reason of GPUShareReady.", "reason")
        self.tier = make.gauge("enforcement_tier", "1 for each mechanism that enforces caps; always for the watcher.", "tier")
        self.instances = make.gauge("mig_instances", "MIG instances on a GPU.", "gpu", "profile")
        make.gauge("start_time_seconds", "When the runtime started, in seconds since 1970.").set(time.time())
        self.build = make.gauge("build_info", "Versions of the runtime and the driver.", "version", "nvml", "driver")

    def _make_kills(self) -> None:
        make = self.registry
        self.over_cap = make.counter("over_cap_total", "Containers warned for exceeding their cap.")
        self.kills = make.counter(
            "kills_total",
            "Processes selected for termination, by the last signal, the outcome and the cause.",
            "signal",
            "outcome",
            "reason",
        )
        make.callback_gauge(
            "last_kill_info",
            f"1 for each of the last {_LAST_KILLS} containers in which a process was terminated.",
            "namespace",
            "pod",
            "container",
            "reason",
            read=lambda: ((kill, 1) for kill in self._last_kills),
        )
        self.evictions = make.counter("evictions_total", "Evictions requested.", "outcome")
        self.suppressed = make.counter(
            "kills_suppressed_total", "Steps against containers over their cap that were not taken.", "reason"
        )
        self.would_act = make.counter(
            "would_act_total",
            "Steps that were only counted, because the runtime observes or makes a dry run.",
            "step",
            "reason",
        )
        self.breaker = make.gauge(
            "kill_breaker_open", "1 while the process lists of a GPU are not believed and no container is terminated."
        )
        self.stuck = make.gauge("stuck_processes", "Killed processes that still hold a device.")

    def _make_rows(self) -> None:
        make = self.registry
        self.rejected = make.counter(
            "process_rows_rejected_total", "Cycles in which a GPU's process list was not trusted.", "reason"
        )
        self.orphans = make.gauge("gpu_orphan_processes", "GPU processes that belong to no known container.", "gpu")
        self.strays = make.gauge("gpu_stray_containers", "Containers on a device that was not allocated to them.", "gpu")
        self.unknown = make.gauge("gpu_memory_unknown_containers", "Containers whose usage the driver does not report.", "gpu")
        self.unattributed = make.gauge(
            "gpu_memory_unattributed_bytes", "GPU memory that no process accounts for, above a threshold.", "gpu"
        )
        self.unresolved = make.gauge("caps_unknown", "Allocations for which no cap could be found.")
        self.xids = make.counter("xid_total", "XID errors that the driver logged.", "xid")
        self.mps_mismatch = make.gauge("mps_limit_mismatch", "1 if the MPS daemon's limit differs from the policy's.", "gpu")
        self.label_conflicts = make.counter("label_conflicts_total", "Labels of the runtime that another program changed.")

    def _make_containers(self) -> None:
        make = self.registry
        make.callback_gauge("containers_over_cap", "Containers over their cap on a device now.", read=self._over_now)
        names = ("namespace", "pod", "container", "gpu")
        make.callback_gauge("container_gpu_memory_used_bytes", "Memory used on a device.", *names, read=self._used)
        make.callback_gauge("container_gpu_memory_cap_bytes", "Memory cap on a device.", *names, read=self._caps)
        make.callback_gauge(
            "container_cap_exempt_until_seconds",
            "When the exemption of a container that started before its cap ends, in seconds since 1970.",
            *names,
            read=self._exempt,
        )
        make.callback_gauge("container_over_cap", "1 while the container is over its cap.", *names, read=self._over)
        make.callback_gauge("gpu_memory_total_bytes", "Total memory of a device.", "gpu", read=self._totals)
        make.callback_gauge(
            "gpu_memory_used_bytes",
            "Memory allocated on a GPU; of a MIG instance, what its processes use.",
            "gpu",
            read=self._device_use,
        )
        make.callback_gauge("gpu_processes", "Processes on a GPU; under MPS, its clients.", "gpu", read=self._processes)

    def _named(self) -> Iterator[tuple[tuple[str, ...], ContainerStatus]]:
        """Yield every status with its labels; one whose pod the API server does not list is left out."""
        snapshot = self.snapshot
        for status in snapshot.observe():
            pod = snapshot.pod_index.find(status.unit.container)
            name = snapshot.pod_index.name(status.unit.container)
            if pod is not None and name is not None:
                yield (pod.namespace, pod.name, name, status.unit.device), status

    def _used(self) -> Iterable[Sample]:
        return ((labels, one.used_bytes) for labels, one in self._named() if one.used_bytes is not None)

    def _caps(self) -> Iterable[Sample]:
        return ((labels, one.cap.bytes) for labels, one in self._named() if one.cap is not None)

    def _exempt(self) -> Iterable[Sample]:
        for labels, one in self._named():
            if one.cap is not None and one.cap.exemption is not None:
                yield labels, math.inf if one.cap.exemption.until is None else one.cap.exemption.until

    def _over(self) -> Iterable[Sample]:
        return ((labels, one.state not in (CapState.OK, CapState.UNKNOWN)) for labels, one in self._named())

    def _over_now(self) -> Iterable[Sample]:
        yield (), sum(status.state not in (CapState.OK, CapState.UNKNOWN) for status in self.snapshot.observe())

    def _totals(self) -> Iterable[Sample]:
        for device in self.snapshot.devices:
            if device.total_bytes is not None:
                yield (device.uuid,), device.total_bytes
            for instance in (device.instances or {}).values():
                if instance.total_bytes is not None:
                    yield (instance.uuid,), instance.total_bytes

    def _device_use(self) -> Iterable[Sample]:
        for device in self.snapshot.devices:
            if device.used_bytes is not None:
                yield (device.uuid,), device.used_bytes
            seen = validate(device) if device.instances else RejectReason.UNREAD
            if not isinstance(seen, RejectReason):
                for uuid, uses in seen.uses.items():
                    known = [used for used in uses.values() if used is not None]
                    if len(known) == len(uses):
                        yield (uuid,), sum(known)

    def _processes(self) -> Iterable[Sample]:
        for device in self.snapshot.devices:
            seen = validate(device)
            if not isinstance(seen, RejectReason):
                # An MPS server outlives its last client, and would make an idle GPU look used.
                pids = [pid for uses in seen.uses.values() for pid in uses]
                yield (device.uuid,), sum(device.mps is Mps.OFF or pid in seen.clients for pid in pids)
