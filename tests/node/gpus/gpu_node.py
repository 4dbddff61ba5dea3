"""A node's GPUs, real pynvml over the fake driver, with the runtime's hardware side on top: what the tests of it share."""

import math
import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpushare.facts.catalog import cards
from gpushare_node.adapters.host.programs import Machine
from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.contract.policy import ExpectedCard, Policy
from gpushare_node.core.clock import Stopped
from gpushare_node.gpus.hardware import GpuView, Hardware, PartitionResult
from gpushare_node.reporting.outcome import Status, StepResult
from gpushare_node.vendors.nvidia.session import Session
from tests.compiler.facts.mig import known_cards
from tests.node.partition import builders as geometry
from tests.node.partition.builders import Stands
from tests.support.fake_nvml import FakeNvml

A100 = "a100-sxm4-40gb"
H100 = "h100-sxm5-80gb"

IDS = {profile.name: profile.id for profile in geometry.A100 if profile.name is not None}
"""The driver's ids of an A100's profiles."""

SEVEN = tuple(("1g.5gb", start) for start in range(7))
MIXED = (("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2))
OTHER = (("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2))
"""From MIXED to OTHER, 2g goes, 1g and 3g stay, two 1g come."""

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"

_PARTS = 2.0**20
"""Of a second: sums of these are exact."""


@dataclass
class FakeClock:
    """Time that passes only in `sleep`. `at` is called with the time after each sleep; `is_stopped` ends the next one."""

    time: float = 0.0
    slept: list[float] = field(default_factory=list)
    at: Callable[[float], None] = lambda _: None
    is_stopped: bool = False

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        if self.is_stopped:
            raise Stopped
        if seconds:
            self.slept.append(seconds)
            # Never too early, and exactly: else a second may lack 1e-15, and a wait of 30 s have 31 of them.
            self.time = math.ceil((self.time + seconds) * _PARTS) / _PARTS
            self.at(self.time)


def policy(*layouts: Iterable[Stands], card: str = A100) -> Policy:
    """A policy for GPUs of a catalogue card, each with these instances."""
    known = cards.load(card)
    own = ExpectedCard(id=card, name=known.name, pci_device_ids=known.pci_device_ids, memory_mib=known.memory_mib)
    profiles = () if known.mig is None else geometry.table(known_cards.geometry(card))
    return geometry.policy(*(geometry.desired(*layout, profiles=profiles) for layout in layouts), card=own)


class GpuNode:
    """One node. Every `run` is a new start of the program: a new Hardware over the same GPUs, folder and boot."""

    def __init__(self, folder: Path, *gpus: str, driver: str = "580.95.05") -> None:
        self.fake_nvml = FakeNvml.make(folder / "fake-nvml", gpus or (A100,), driver=driver)
        self.fake_nvml.load()
        self.folder = StateDir(folder / "state")
        self.clock = FakeClock()
        self.boot_id = "boot-1"
        self.digest = "digest-1"
        self.resets: list[str] = []
        self.reset_answer: Callable[[str], str | None] = lambda _: "there is no nvidia-smi on the host"
        self.nodes_answer: str | None = None
        self.openers: tuple[str, ...] = ()
        self.results: list[StepResult] = []

    def hardware(self) -> Hardware:
        machine = Machine(
            boot_id=self.boot_id, reset=self._reset, make_nodes=lambda: self.nodes_answer, name_openers=lambda: self.openers
        )
        return Hardware(
            open_driver=Session.open, folder=self.folder, clock=self.clock, policy_digest=self.digest, machine=machine
        )

    def run(self, desired: Policy, allocated: Iterable[str] = (), *, check: bool = False) -> PartitionResult:
        own, given = self.hardware(), frozenset(allocated)
        self.results = []
        try:
            return own.change(desired, own.look(desired, given), given, self.results.append, check=check)
        finally:
            own.close()

    def look(self, desired: Policy, allocated: Iterable[str] = ()) -> GpuView:
        own = self.hardware()
        try:
            return own.look(desired, frozenset(allocated))
        finally:
            own.close()

    def run_to_death(self, desired: Policy) -> int:
        """`run` in a process of its own; the signal that it died of, 0 if it ended well."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.fake_nvml.load()
                self.run(desired)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        self.fake_nvml.kill_before(0)
        self.fake_nvml.kill_after(0)  # what is left would strike the test itself
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the program failed by itself"
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def reboot(self) -> None:
        self.fake_nvml.reboot()
        self.boot_id += "'"

    def stand(self, gpu: int, *instances: Stands) -> dict[int, int]:
        """Have these whole instances on an A100, MIG on; GPU instance ids by start."""
        self.fake_nvml.set_mode(gpu, True)
        return {start: self.fake_nvml.add_instance(gpu, IDS[name], start) for name, start in instances}

    def stands(self, gpu: int) -> set[tuple[str, int]]:
        """What stands on an A100; a name ends in ? where the instance is not whole."""
        names = {number: name for name, number in IDS.items()}
        return {
            (names[profile] + ("" if computes == 1 else "?"), start)
            for _, profile, start, _, computes in self.fake_nvml.instances(gpu)
        }

    def gi_at(self, gpu: int, start: int) -> int:
        return next(gi for gi, _, at, _, _ in self.fake_nvml.instances(gpu) if at == start)

    def said(self, status: Status) -> list[str]:
        return [f"{result.target}: {result.step}" for result in self.results if result.status is status]

    def _reset(self, pci_bus_id: str) -> str | None:
        self.resets.append(pci_bus_id)
        return self.reset_answer(pci_bus_id)
