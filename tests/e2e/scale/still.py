"""A GPU that nothing uses, whole or with MIG, for simulated nodes of which a thousand fit into a process."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from gpushare.facts.catalog import cards
from gpushare_node.adapters.host.programs import Machine
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import replace
from gpushare_node.core.worker import WorkQueue
from gpushare_node.guard.process_list import Device
from gpushare_node.partition.state import Placement, Profile
from gpushare_node.vendors.driver import Activation, ComputeInstance, ComputeMode, GpuInfo, GpuInstance, MigInfo, Versions
from tests.e2e.cluster.dra.devices import MigDevice

MACHINE = Machine(
    boot_id="00000000-aaaa-4aaa-8aaa-000000000000",
    reset=lambda _: "nobody resets it",
    make_nodes=lambda: None,
)


class StillDriver:
    """One GPU without MIG."""

    def __init__(self, uuid: str, policy: Policy) -> None:
        card = policy.card
        self._survey = GpuInfo(
            index=0,
            uuid=uuid,
            name=card.name,
            pci_device_id=card.pci_device_ids[0],
            memory_mib=card.memory_mib,
            compute_mode=ComputeMode.DEFAULT,
        )

    def survey(self) -> tuple[GpuInfo, ...]:
        """The GPU."""
        return (self._survey,)

    def versions(self) -> Versions:
        """Some."""
        return Versions(driver="595.00", nvml="13.595.00", cuda="13.2")

    def has_memory_limits(self) -> bool:
        """As before R615."""
        return False

    def close(self) -> None:
        """Nothing is held."""


class Division:
    """How a GPU is divided, which its driver's sessions read and change: MIG mode, and instances by their ids."""

    def __init__(self) -> None:
        self.is_on = False
        self.instances: dict[int, GpuInstance] = {}
        self._made = 0

    def add(self, **place: int) -> int:
        """An instance without a compute instance; its id."""
        self._made += 1
        self.instances[self._made] = GpuInstance(gi_id=self._made, compute=(), **place)
        return self._made

    def devices(self, gpu: str, card_id: str) -> Iterator[MigDevice]:
        """The MIG devices, as the DRA driver reads them of NVML."""
        known = {one.profile_id: one for one in _geometry(card_id)}
        for gi_id, one in self.instances.items():
            profile = known[one.profile_id]
            yield MigDevice(
                uuid=_mig_uuid(gpu, gi_id),
                gi=gi_id,
                ci=0,
                profile=profile.name,
                profile_id=one.profile_id,
                start=one.start,
                size=one.size,
                memory_mib=profile.memory_mib or 0,
                engines={},
            )


def _mig_uuid(gpu: str, gi_id: int) -> str:
    return f"MIG-{gi_id}-{gpu}"


def _geometry(card_id: str) -> tuple[cards.MigProfile, ...]:
    geometry = cards.load(card_id).mig
    return () if geometry is None else geometry.profiles


@cache
def _profiles(card_id: str) -> tuple[Profile, ...]:
    """As the driver offers them."""
    return tuple(
        Profile(
            id=one.profile_id,
            name=one.name,
            placements=tuple(Placement(start=place.start, size=place.size) for place in one.placements),
        )
        for one in _geometry(card_id)
        if one.profile_id is not None
    )


class DividedDriver(StillDriver):
    """One GPU with MIG, which a new layout changes at once."""

    def __init__(self, uuid: str, policy: Policy, division: Division) -> None:
        super().__init__(uuid, policy)
        self._division = division
        self._card_id = policy.card.id

    def survey(self) -> tuple[GpuInfo, ...]:
        """The GPU as it is divided now."""
        now = self._division
        instances = tuple(now.instances.values())
        mig = MigInfo(current=now.is_on, pending=now.is_on, instances=instances, profiles=_profiles(self._card_id))
        return (replace(self._survey, mig=mig),)

    def set_mig(self, _: str, *, enabled: bool) -> Activation:
        """As on a GPU that needs no reset."""
        self._division.is_on = enabled
        return Activation.ACTIVE

    def create_instance(self, _: str, *, profile_id: int, start: int, size: int) -> int:
        """The id of the new instance."""
        return self._division.add(profile_id=profile_id, start=start, size=size)

    def create_compute(self, uuid: str, gi_id: int) -> None:
        """One of the instance's whole size."""
        whole = ComputeInstance(ci_id=0, is_whole=True, uuid=_mig_uuid(uuid, gi_id))
        self._division.instances[gi_id] = replace(self._division.instances[gi_id], compute=(whole,))

    def destroy_compute(self, _: str, gi_id: int, __: int) -> None:
        """The instance has none any more."""
        self._division.instances[gi_id] = replace(self._division.instances[gi_id], compute=())

    def destroy_instance(self, _: str, gi_id: int) -> None:
        """It is gone."""
        del self._division.instances[gi_id]


def driver_of(uuid: str, policy: Policy, division: Division) -> StillDriver:
    """A session with the driver of a node's GPU, which can be divided if it is of such a card."""
    return DividedDriver(uuid, policy, division) if _profiles(policy.card.id) else StillDriver(uuid, policy)


class StillWatched:
    """`BoundedDriver` over it, without the threads against a driver that hangs."""

    def __init__(self, driver: StillDriver) -> None:
        self._driver = driver

    def read_devices(self, uuids: Iterable[str]) -> Mapping[str, Device]:
        """No process."""
        return {uuid: Device(uuid=uuid, total_bytes=16 << 30, rows=(), used_bytes=0, used_before_bytes=0) for uuid in uuids}

    def ask(self, _: str, question: Callable[[Any], Any]) -> Any:
        """Answered at once."""
        return question(self._driver)

    def survey(self, *, wait_seconds: float) -> tuple[Versions, tuple[GpuInfo, ...]]:
        """The GPU."""
        return self._driver.versions(), self._driver.survey()

    def hung_seconds(self) -> Mapping[str, float]:
        """None hangs."""
        return {}

    def troubles(self) -> Mapping[str, Exception]:
        """None."""
        return {}

    def unreliable(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def xids(self) -> tuple[()]:
        """None."""
        return ()

    def refresh(self) -> None:
        """Nothing changes."""

    def close(self) -> None:
        """Nothing is held."""


class InlineQueue(WorkQueue):
    """Errands that are run at once: a thousand nodes in one process need no thread of each."""

    def send(self, job: Callable[[], None]) -> bool:
        """Run it."""
        job()
        return True
