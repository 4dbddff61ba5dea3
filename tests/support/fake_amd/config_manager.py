"""FakeConfigManager: AMD's config manager as far as a node sees it: a label asks, GPUs change, a label and an Event answer.

A changed label cancels what it does; without the label it does nothing; when its pod starts it applies the label that is there.
It changes GPU after GPU, the memory mode before the compute mode, none that has its modes already, and tries again each minute
for half an hour. Its former answer stays until the new one (device-config-manager v1.3.1).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.support.fake_amd.sysfs import FakeSysfs, RefusedError

LABEL = "dcm.amd.com/gpu-config-profile"
STATE = "dcm.amd.com/gpu-config-profile-state"
RETRY_SECONDS = 60.0


@dataclass
class FakeConfigManager:
    """`profiles` have the modes of every GPU. `write` sets its label, `tell` sends its Event."""

    sysfs: FakeSysfs
    profiles: Mapping[str, list[tuple[str, str]]]
    write: Callable[[str, str], object]
    tell: Callable[[str], object]
    work_seconds: float = 30.0
    give_up_seconds: float = 1800.0
    is_silent: bool = False
    skips: frozenset[int] = frozenset()
    """GPUs that it does not change, and calls changed all the same."""
    _seen: str | None = None
    _began: float = 0.0
    _next: float | None = None
    asked: list[str] = field(default_factory=list)

    def start(self, label: str | None, now: float) -> None:
        """Its pod starts: after a boot of the node, too."""
        self._seen, self._next = None, None
        self.look(label, now)

    def look(self, label: str | None, now: float) -> None:
        """It sees the node's label at this time, and works."""
        if label != self._seen:
            self._seen, self._next = label, None
            if label is not None:
                self.asked.append(label)
                self._began, self._next = now, now + self.work_seconds
        if self._next is None or now < self._next or self.is_silent or label is None:
            return
        problems = self._apply(label)
        if problems and now - self._began < self.give_up_seconds and label in self.profiles:
            self._next = now + RETRY_SECONDS
            return
        self._next = None
        self.tell(self._event(label, problems))
        self.write(STATE, "failure" if problems else "success")

    def _apply(self, label: str) -> dict[int, str]:
        if label not in self.profiles:
            return {-1: "NonExistentProfile"}
        problems = {}
        for number, (compute, memory) in enumerate(self.profiles[label]):
            gpu = self.sysfs.gpus[number]
            if number in self.skips:
                continue
            try:
                if gpu.memory != memory:
                    self.sysfs.set_memory(number, memory)
                if gpu.compute != compute:
                    self.sysfs.set_compute(number, compute)
            except RefusedError as error:
                problems[number] = str(error)
        return problems

    def _event(self, label: str, problems: Mapping[int, str]) -> str:
        gpus = [
            {"GpuID": number, "PartitionType": f"{gpu.compute}-{gpu.memory}", "Status": "Failure", "Message": problems[number]}
            for number, gpu in enumerate(self.sysfs.gpus)
            if number in problems
        ]
        reason = "PartitionFailure" if problems else "SuccessfullyPartitioned"
        status = "Failure" if problems else "Success"
        return json.dumps({"SelectedProfile": label, "FinalStatus": status, "Reason": reason, "GPUStatus": gpus})
