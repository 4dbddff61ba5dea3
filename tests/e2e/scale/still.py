"""A GPU that nothing changes or uses, for simulated nodes of which a thousand fit into a process."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpushare_node.adapters.host.devices import Machine
from gpushare_node.core.policy import Policy
from gpushare_node.enforce.work_queue import WorkQueue
from gpushare_node.guard.process_list import Device
from gpushare_node.vendors.driver import ComputeMode, GpuInfo, Versions

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
