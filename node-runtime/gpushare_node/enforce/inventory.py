"""Inventory: data that changes slowly and is read at longer intervals: GPUs, MIG profiles, kubelet's allocations, caps.

Makes no call to the API server. What cannot be read again keeps its last value; what is new stays unknown until it can be read.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Protocol

from gpushare_node.adapters.host.state_dir import KeptContainer, StateDir, StateDirError
from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.backends.backend import NO_CHECKPOINT, Checkpoint, CheckpointError
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.contract.tenancy import UNKNOWN, Tenancy
from gpushare_node.enforce.exemptions import WallClock
from gpushare_node.enforce.grants import (
    Allocations,
    Noticed,
    Profiles,
    by_pod,
    grant,
    profiles,
    terms,
)
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.guard.inputs import ContainerId, Grant, Process
from gpushare_node.vendors import UUIDS
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import DriverError, GpuInfo, Versions

SURVEY_SECONDS = 30
"""How often GPUs and instances are enumerated again."""

_NEW_DEVICE_SECONDS = 2
"""The same if a claim has a MIG device that was made since: until it is known, its containers have no cap."""

_SURVEY_WAIT_SECONDS = 1.0
"""How long a cycle waits for that. Enumerating MIG devices under load takes seconds: a later cycle takes a later answer."""

STALE_SECONDS = 60
"""How old the list of pods may be to determine grants of new containers."""

_ALLOCATIONS_SECONDS = 10

_REMEMBER_SECONDS = 3600
"""How long caps are kept for containers that are no longer listed. Reboots and outages of the API server take less.

The same applies to whole pods that were deleted while they ran, from when they were last seen on a GPU.
"""

_BLIND_SECONDS = 60
"""How long allocations may be unknown before the node's condition reports it."""

_SAVE_SECONDS = 30
"""How long until caps that could not be stored, because the disk was full, are stored."""

_LOG = logging.getLogger(__name__)


class Pods(Protocol):
    """The node's pods, which the implementation keeps up to date."""

    def pods(self) -> tuple[PodView, ...]:
        """Return the pods as last received; pods that have not changed are the same objects as before."""
        ...

    @property
    def age_seconds(self) -> float:
        """How long ago the list was last known to be current; infinite before the first time."""
        ...


class Tenants(Protocol):
    """Which namespaces are tenants' and which are the platform's."""

    def find(self) -> Tenancy:
        """Return the tenancy as last known; the same object as long as nothing changes."""
        ...

    @property
    def problem(self) -> str:
        """Why it cannot be read now; empty if it can."""
        ...


class Inventory(Struct, frozen=False):
    """What is known now. `surveys` None: the driver has not answered yet.

    `gpus` are the UUIDs of all GPUs that were ever seen: one that fell off its bus is reported as missing, and may come back.
    `noticed` are exemptions that this cycle has found.
    """

    driver: BoundedDriver
    pods: Pods
    read_checkpoint: Callable[[], Checkpoint]
    folder: StateDir
    policy: Policy
    tenants: Tenants
    dates: WallClock
    dry_run: bool = False
    noticed: tuple[Noticed, ...] = ()
    surveys: tuple[GpuInfo, ...] | None = None
    versions: Versions | None = None
    gpus: tuple[str, ...] = ()
    pod_index: PodIndex = field(default_factory=PodIndex)
    tenancy: Tenancy = UNKNOWN
    grants: Mapping[ContainerId, Grant] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()
    _profiles: Profiles = field(default_factory=dict)
    _allocations: Allocations | None = None
    _surveyed_at: float | None = None
    _allocated_at: float | None = None
    _checkpoint: Checkpoint | None = None
    _seen_pods: tuple[PodView, ...] | None = None
    _present: tuple[PodView, ...] = ()
    _gone: Mapping[str, tuple[PodView, float]] = field(default_factory=dict)
    _is_due: bool = True
    _is_read: bool = False
    _kept: Mapping[str, KeptContainer] | None = None
    _first_caps: FirstCaps | None = None
    _is_begun: bool = True
    _absent_since: dict[str, float] = field(default_factory=dict)
    _next_end: float = inf
    _complaint: str = ""
    _ended: frozenset[ContainerId] = frozenset()
    _listed: tuple[PodView, ...] = ()
    _pooled: frozenset[ContainerId] = frozenset()
    _unknown_since: Mapping[str, float] = field(default_factory=dict)
    _unread_since: float | None = None
    _registered: frozenset[str] = frozenset()
    _unallocated: Mapping[str, float] = field(default_factory=dict)
    _save_at: float = inf

    def renew(self, now: float, *, has_strays: bool = False) -> bool:
        """Read again what is due; with strays, the allocations in each cycle. Return whether the GPUs were surveyed again."""
        is_surveyed = self._survey(now, SURVEY_SECONDS)
        tenancy = self.tenants.find()
        if tenancy != self.tenancy:
            # The same pods may belong to others now.
            self.tenancy, self._seen_pods = tenancy, None
        is_fresh = self.pods.age_seconds <= STALE_SECONDS
        found = self.pods.pods()
        is_changed = is_fresh and found != self._seen_pods
        self._is_read = False
        is_allocated = self._allocate(now, at_once=is_changed or has_strays)
        if self._has_new_device():
            is_surveyed |= self._survey(now, _NEW_DEVICE_SECONDS)
        if is_fresh:
            is_changed |= self._follow(found, now)
            found = (*self._find_unknown(found, now), *(pod for pod, _ in self._gone.values()), *found)
            is_changed |= found != self._listed
        if is_fresh and (is_changed or is_allocated):
            self._seen_pods = self._present
            self.pod_index = replace(PodIndex.of(found, tenancy.platform, self._holders()), pooled=self._pooled)
        self._is_due |= is_changed or is_allocated or self.dates.now() >= self._next_end
        self.noticed = ()
        if is_fresh and self._is_due:
            self._grant(found, now)
        if now >= self._save_at and self._kept is not None:
            self._save(self._kept, now)
        return is_surveyed

    def blindness(self, now: float) -> str:
        """Return which allocations have been unknown for a while, so that containers may have no cap; empty if none are."""
        pods = sorted(name for name, since in self._unallocated.items() if now - since >= _BLIND_SECONDS)
        if pods:
            return f"Kubelet's checkpoint does not list the devices of {', '.join(pods)}; their caps are not enforced."
        is_lost = self._unread_since is not None and now - self._unread_since >= _BLIND_SECONDS
        return f"{self._complaint}; containers that started later have no cap." if is_lost else ""

    def note_present(self, processes: Iterable[Process], now: float) -> None:
        """Record that these are on the GPUs: their pods still run, even if the API server no longer lists them."""
        if self._gone:
            uids = {process.container.pod_uid for process in processes if process.container is not None}
            self._gone = {uid: (pod, at if uids.isdisjoint(pod.uids) else now) for uid, (pod, at) in self._gone.items()}

    def _follow(self, found: tuple[PodView, ...], now: float) -> bool:
        """Keep pods that vanish while they run: after a forced deletion they may run for long. Return whether one expired."""
        former, self._present = self._present, found
        gone = dict(self._gone)
        if former != found:
            present = {pod.uids[0] for pod in found}
            held = {container.pod_uid for container in self.grants}
            gone.update(
                {
                    pod.uids[0]: (replace(pod, is_gone=True), now)
                    for pod in former
                    if pod.uids[0] in held - present and pod.started and not pod.has_ended
                }
            )
            gone = {uid: one for uid, one in gone.items() if uid not in present}
        self._gone = {uid: (pod, at) for uid, (pod, at) in gone.items() if now - at < _REMEMBER_SECONDS}
        return len(self._gone) < len(gone)

    def _find_unknown(self, found: tuple[PodView, ...], now: float) -> Iterator[PodView]:
        """Yield the pods that kubelet has given something and the API server does not list, for a while: all are one container.

        Static pods have a mirror only if the API server accepts it, and one that was deleted by force may run on.
        """
        known = {uid for pod in found for uid in pod.uids} | {uid for pod, _ in self._gone.values() for uid in pod.uids}
        unknown = (self._allocations or {}).keys() - known
        self._unknown_since = {uid: self._unknown_since.get(uid, now) for uid in unknown}
        for uid, since in sorted(self._unknown_since.items()):
            if now - since >= STALE_SECONDS:
                yield PodView(
                    uids=(uid,),
                    namespace="",
                    name=uid,
                    labels={},
                    phase="",
                    is_terminating=False,
                    owner="",
                    containers={},
                    is_gone=True,
                )

    @property
    def is_allocation_known(self) -> bool:
        """Whether this cycle has read the pods and kubelet's allocations itself, so that none of its grants is older."""
        return self._is_read and self.pods.age_seconds <= 0 and not self._is_due

    def _holders(self) -> frozenset[str]:
        """Return the uids of the pods that hold a share of the pool."""
        resources = {share.resource for share in self.policy.shares}
        given = (self._allocations or {}).items()
        return frozenset(uid for uid, several in given if any(one.resource in resources for one in several))

    def _has_new_device(self) -> bool:
        """Return whether a claim has a device that the last survey does not list, where the DRA driver makes devices."""
        return self.policy.is_on_demand and any(
            device.startswith(UUIDS) and device not in self._profiles
            for several in (self._allocations or {}).values()
            for one in several
            for device in one.devices
        )

    def _survey(self, now: float, seconds: float) -> bool:
        if self._surveyed_at is not None and now - self._surveyed_at < seconds:
            return False
        try:
            found = self.driver.survey(wait_seconds=_SURVEY_WAIT_SECONDS)
        except DriverError:
            return False
        if found is None:
            return False
        self.versions, surveys = found
        self._surveyed_at = now
        # If the devices are the same as before, no grant changes; computing grants takes longer than the rest of a cycle.
        found_profiles = profiles(surveys, self.policy)
        self._is_due |= self.surveys is None or found_profiles != self._profiles
        self.surveys, self._profiles = surveys, found_profiles
        self.gpus = tuple(dict.fromkeys((*self.gpus, *(survey.uuid for survey in surveys if survey.name))))
        self.driver.refresh()
        return True

    def _allocate(self, now: float, *, at_once: bool) -> bool:
        """Read kubelet's allocations again; return whether they changed. Kubelet writes them before a container starts."""
        if not at_once and self._allocated_at is not None and now - self._allocated_at < _ALLOCATIONS_SECONDS:
            return False
        self._allocated_at = now
        problem = f"{NO_CHECKPOINT}: allocations since the last one are unknown"
        # On a new node there is none yet.
        is_new = self._allocations is None
        try:
            checkpoint = self.read_checkpoint()
        except CheckpointError as error:
            checkpoint, problem, is_new = None, str(error), False
        if checkpoint is None or not checkpoint.is_there:
            self._complain(problem)
            self._unread_since = now if self._unread_since is None and not is_new else self._unread_since
            return False
        self._is_read, self._unread_since = True, None
        if checkpoint is self._checkpoint:
            return False
        self._checkpoint = checkpoint
        former = (self._allocations, self._registered)
        self._allocations = by_pod(checkpoint.allocations)
        self._registered = frozenset(name for name, ids in checkpoint.registered.items() if ids)
        return (self._allocations, self._registered) != former

    def note_ended(self, ended: frozenset[ContainerId], now: float) -> None:
        """Record in which listed containers nothing runs any more. Kubelet starts them again without the API server, too."""
        if ended != self._ended:
            self._ended = ended
            self._grant(self._listed, now)

    def _grant(self, pods: tuple[PodView, ...], now: float) -> None:
        self._listed = pods
        begun = self._begin(pods)
        if self._allocations is None or self.surveys is None:
            return
        self._is_due = False
        if self._kept is None:
            self._kept = self.folder.caps()
        watched = [pod for pod in pods if pod.uids[0] not in self.pod_index.platform]
        now_terms = terms(self.policy, self.tenancy, self._profiles, begun, self.dates, self._registered, self._ended)
        granted = grant(watched, self._allocations, now_terms, self._kept)
        if granted.pooled != self._pooled:
            self._pooled = frozenset(granted.pooled)
            self.pod_index = replace(self.pod_index, pooled=self._pooled)
        self.grants, self.noticed = granted.grants | granted.rests, granted.noticed
        for doubt in granted.unresolved:
            if doubt not in self.unresolved:
                _LOG.warning("%s", doubt)
        self.unresolved = granted.unresolved
        self._unallocated = {name: self._unallocated.get(name, now) for name in granted.lost}
        self._keep({**self._absent(granted.kept, now), **granted.kept}, now)

    def _begin(self, pods: tuple[PodView, ...]) -> FirstCaps:
        """Return when this node began to enforce caps, which is now if it has not, and what ran then.

        Who only observes compares all containers with the caps, as if they had been started under them.
        """
        if self.policy.observes:
            return FirstCaps(since=0)
        if self._first_caps is None:
            self._first_caps = self.folder.first_caps()
        if self._first_caps is None:
            today = self.dates.wall()
            older = frozenset(one for pod in pods for one in pod.older_than(today))
            self._first_caps = FirstCaps(since=int(today), older=older)
            self._is_begun = self.dry_run
        if not self._is_begun:
            try:
                self.folder.keep_first_caps(self._first_caps)
                self._is_begun = True
            except StateDirError as error:
                self._complain(str(error))
        return self._first_caps

    def _absent(self, present: Mapping[str, KeptContainer], now: float) -> dict[str, KeptContainer]:
        """Return the stored caps of containers not listed now: a list may lack a running pod, and a pod its last run."""
        gone = {name: kept for name, kept in (self._kept or {}).items() if name not in present}
        self._absent_since = {name: self._absent_since.get(name, now) for name in gone}
        return {name: kept for name, kept in gone.items() if now - self._absent_since[name] < _REMEMBER_SECONDS}

    def _keep(self, kept: Mapping[str, KeptContainer], now: float) -> None:
        notices = [cap.notice for container in kept.values() for cap in container.caps if cap.notice is not None]
        dates = [
            notice.until for notice in notices if notice.until is not None and notice.seconds is not None and not notice.is_over
        ]
        self._next_end = min(dates, default=inf)
        if kept == self._kept:
            return
        self._kept = kept
        # A dry run stores none: a stored cap would apply from the first real run on.
        if not self.dry_run:
            self._save(kept, now)

    def _save(self, kept: Mapping[str, KeptContainer], now: float) -> None:
        try:
            self.folder.keep_caps(kept)
            self._save_at = inf
        except StateDirError:
            # The monitor reports it. The caps are still enforced; only a restart after a change of policy would not know them.
            self._save_at = now + _SAVE_SECONDS

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            _LOG.warning("%s", text)
