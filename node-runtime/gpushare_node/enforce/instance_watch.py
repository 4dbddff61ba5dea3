"""InstanceWatch: whether the MIG instances on demand are those of the claims that the DRA driver has prepared.

The driver makes an instance before it notes that the claim is prepared, and removes it before it forgets the claim; and GPUs
and claims are read at different times. So only a difference that lasts counts. Removes nothing: an instance without a claim
may have a tenant that is not known here.
"""

import re
from collections.abc import Iterable, Iterator

from gpushare_node.backends.backend import Allocation
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field
from gpushare_node.reporting.outcome import Unmet, join_first
from gpushare_node.vendors import UUIDS, is_gpu_resource
from gpushare_node.vendors.driver import GpuInfo

LASTING_SECONDS = 120.0
"""How long a difference lasts before it is reported: four surveys. The driver needs seconds, a failed try is repeated."""

_PLACE = re.compile("gpu-[0-9]+-mig-.+-([0-9]+)-([0-9]+)")
_MAX_NAMED = 3


class InstanceWatch(Struct, frozen=False):
    """The watch over one node's instances."""

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
