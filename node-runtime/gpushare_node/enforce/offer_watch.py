"""OfferWatch: whether the node still offers what the plan promises, and the flip of the plugin's label where that cures it.

It compares kubelet's checkpoint and the Node's allocatable with the GPUs, unless MPS serves no client, whatever is offered. Its
calls to the API server run on the work queue.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.adapters.kube.cluster import Cluster, ClusterError, platform_pods
from gpushare_node.backends.backend import Allocation, Checkpoint, CheckpointError, find_rival
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.gpus.view import build_view, is_converged, missing_gpus, registrable
from gpushare_node.reporting.outcome import Unmet, join_first
from gpushare_node.vendors import UUIDS, is_gpu_resource
from gpushare_node.vendors.driver import GpuInfo

LASTING_SECONDS = 120.0
"""How long a difference lasts before it is reported: four surveys. The driver needs seconds, a failed try is repeated."""

_PLACE = re.compile("gpu-[0-9]+-mig-.+-([0-9]+)-([0-9]+)")
_MAX_NAMED = 3


class InstanceWatch(Struct, frozen=False):
    """Whether the MIG instances on demand are those of the claims that the DRA driver has prepared.

    The driver makes an instance before it notes that the claim is prepared, and removes it before it forgets the claim; and
    GPUs and claims are read at different times. So only a difference that lasts counts. Removes nothing: an instance without a
    claim may have a tenant that is not known here.
    """

    _since: dict[str, float] = field(default_factory=dict)
    """Since when each difference has been seen, by its text."""

    def find(self, surveys: Iterable[GpuInfo], allocations: Iterable[Allocation], now: float) -> Unmet | None:
        """Return the differences that have lasted. `now` is monotonic seconds."""
        found = set(_differences(tuple(surveys), tuple(allocations)))
        self._since = {text: self._since.get(text, now) for text in found}
        lasting = sorted(text for text, since in self._since.items() if now - since >= LASTING_SECONDS)
        if not lasting:
            return None
        return Unmet(reason=ConditionReason.WRONG_INSTANCES, message=join_first(lasting, _MAX_NAMED))


def _differences(surveys: tuple[GpuInfo, ...], allocations: tuple[Allocation, ...]) -> Iterator[str]:
    """Yield them. A claim that is being prepared has no UUID yet: it may have the instances of its place on any GPU."""
    claimed = {one: allocation for allocation in allocations for one in allocation.devices if allocation.claim is not None}
    places = {match.groups() for one in claimed if (match := _PLACE.fullmatch(one)) is not None}
    there: set[str] = set()
    for survey in surveys:
        for instance in survey.mig.instances if survey.mig is not None else ():
            uuids = {compute.uuid for compute in instance.compute if compute.uuid is not None}
            there |= uuids
            if uuids.isdisjoint(claimed) and (str(instance.profile_id), str(instance.start)) not in places:
                name = ", ".join(sorted(uuids)) or f"GPU instance {instance.gi_id} without a MIG device"
                yield f"{name} on GPU {survey.index} belongs to no claim"
    if any(survey.fault is not None for survey in surveys):
        return
    gpus = {survey.uuid for survey in surveys}
    for device, allocation in claimed.items():
        if device.startswith(UUIDS) and device not in there | gpus and is_gpu_resource(allocation.resource):
            claim = allocation.claim
            yield f"{device} of claim {claim and claim.namespace}/{claim and claim.name} does not exist"


LOOK_SECONDS = 45.0
"""Between two looks while the offer is right. With `RETRY_SECONDS` a difference is the node's condition within a minute."""

RETRY_SECONDS = 12.0
"""Between two looks while it is wrong. What two looks see has lasted longer than kubelet's report, which takes 10 s."""

_SILENCE_SECONDS = 400.0
"""For how long a watch is believed that shows no change of the Node: kubelet writes it at least every five minutes."""

_FLIP_SECONDS = 30.0
_MPS_FLIP_SECONDS = 120.0
"""How long a difference lasts before a flip: a plugin that restarts by itself is faster, also behind its MPS daemon."""

_MAX_FLIPS = 3
_FLIPS_SECONDS = 3600.0
"""No more flips in this time: what they do not cure has another cause, and each takes the offer away for seconds."""


class OfferWatch(Struct, frozen=False):
    """The offer of this node. `flip` has the plugin enumerate again, unless a GPU `is_faulty`: that would bring it back.

    `finding` is what is wrong, once it has lasted.
    """

    enforcer: Enforcer
    cluster: Cluster
    flip: Callable[[], None]
    is_faulty: Callable[[], bool] = lambda: False
    finding: Unmet | None = None
    next_look: float = float("-inf")
    _seen: Unmet | None = None
    _mps_trouble: Unmet | None = None
    _since: float = 0.0
    _flips: deque[float] = field(default_factory=deque)
    _instances: InstanceWatch = field(default_factory=InstanceWatch)
    _allocatable: Mapping[str, int] = field(default_factory=dict)
    _version: str | None = None
    """Of the Node when `_allocatable` was read."""
    _read_at: float = float("-inf")

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.enforcer.config.policy

    def look(self, now: float) -> None:
        """Look, if that is due or MPS has failed or recovered, on the work queue's thread. `now` is monotonic seconds."""
        surveys, trouble = self.enforcer.inventory.surveys, self.enforcer.limit_tiers.mps_trouble
        if trouble != self._mps_trouble:
            self._mps_trouble, self.next_look = trouble, now
        if now >= self.next_look and surveys is not None:
            self.next_look = now + RETRY_SECONDS
            self.enforcer.queue.send(partial(self._look, surveys, now))

    def _look(self, surveys: tuple[GpuInfo, ...], now: float) -> None:
        """Compare, and flip in time. If the API server does not answer, what was found stays."""
        try:
            # Kubelet writes the checkpoint first.
            allocatable = self._read_allocatable(now)
            checkpoint = self._read_checkpoint()
            self._compare(self._mps_trouble or self._find(surveys, checkpoint, allocatable, now), now)
            if self._must_flip(now, is_held=checkpoint is None or self._is_held(checkpoint)):
                self.flip()
        except (ClusterError, StateDirError):
            self.enforcer.metrics.api_errors.add("offer")

    def _read_allocatable(self, now: float) -> Mapping[str, int]:
        """Return what the Node says. It is large, and read only if its watch has shown a change, or may have missed one."""
        followed = self.enforcer.adapters.followed_node
        # Before the request: what it answers is no older.
        version = None if followed is None else followed.version()
        if version is None or version != self._version or now - self._read_at > _SILENCE_SECONDS:
            self._allocatable, self._version, self._read_at = self.cluster.node().allocatable, version, now
        return self._allocatable

    def _read_checkpoint(self) -> Checkpoint | None:
        try:
            checkpoint = self.enforcer.adapters.backend.read_checkpoint()
        except CheckpointError:
            return None
        return checkpoint if checkpoint.is_there else None

    def _is_held(self, checkpoint: Checkpoint) -> bool:
        """Return whether a pod that has not ended holds a share of the node."""
        pods = self.enforcer.inventory.pod_index.pods
        held = (pods.get(allocation.pod_uid) for allocation in checkpoint.allocations if is_gpu_resource(allocation.resource))
        return any(pod is not None and not pod.has_ended for pod in held)

    def _compare(self, found: Unmet | None, now: float) -> None:
        """Take in what a look has found."""
        self.next_look = now + (LOOK_SECONDS if found is None else RETRY_SECONDS)
        if found is None or self._seen is None:
            self._since = now
        self.finding = found if self._seen is not None else None
        self._seen = found

    def _must_flip(self, now: float, *, is_held: bool) -> bool:
        """Return whether the plugin must enumerate again; if so, that is counted. `is_held`: pods hold shares of the node.

        A flip restarts an MPS daemon too, which ends its clients.
        """
        has_daemon = self.policy.mode.has_daemon
        if self.finding is None or not self.finding.is_stale or self.is_faulty() or (has_daemon and is_held):
            return False
        while self._flips and now - self._flips[0] >= _FLIPS_SECONDS:
            self._flips.popleft()
        grace = (_MPS_FLIP_SECONDS if has_daemon else _FLIP_SECONDS) * 2 ** len(self._flips)
        if len(self._flips) >= _MAX_FLIPS or now - max([self._since, *self._flips]) < grace:
            return False
        self._flips.append(now)
        return True

    def _find(
        self, surveys: tuple[GpuInfo, ...], checkpoint: Checkpoint | None, allocatable: Mapping[str, int], now: float
    ) -> Unmet | None:
        """Return how the offer differs from the plan. While the GPUs themselves differ, they are what is reported."""
        policy, adapters = self.policy, self.enforcer.adapters
        fault = adapters.backend.find_fault()
        if fault is not None:
            return fault
        view = build_view(surveys, policy, allocated=frozenset(), pending_modes={})
        if not is_converged(view):
            return None
        desired = adapters.backend.expected(policy, missing_gpus(view))
        registered = None if checkpoint is None else checkpoint.registered
        found = adapters.backend.find_mismatch(desired, registrable(surveys), registered, allocatable)
        if found is None and policy.is_on_demand and checkpoint is not None:
            return self._instances.find(surveys, checkpoint.allocations, now)
        if found is None:
            return find_rival(self.cluster, policy, adapters.is_served)
        pods = platform_pods(adapters.pods.pods(), adapters.tenants.find().platform)
        return replace(found, message=found.message + adapters.backend.explain(pods, policy))
