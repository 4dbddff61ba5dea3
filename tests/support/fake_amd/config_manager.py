"""FakeConfigManager: AMD's config manager as far as a node sees it: a label asks, GPUs change, a label and Events answer.

As the source of device-config-manager v1.3.1 has it (pkg/config_manager/gpu_config_manager.go):

- A label that changes, or is there when its pod starts, is a request; so is a new file, of the label that is there. Without the
  label there is no request, but none that has begun is cancelled.
- A request cancels the one before, whose attempt ends first and gives its own answer. One more waits, all others are dropped.
- It changes GPU after GPU, the memory mode before the compute mode, none that has its modes already. The first refusal makes
  the answer `failure`; the others are tried, and all are each minute for half an hour. A success then replaces the answer.
- A profile that its file lacks is a failure at once, which it does not try again.
- Its Events name its pod, without a uid. What it says of a try is the first refusal's Event, and one at the end.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.support.fake_amd.sysfs import FakeSysfs, RefusedError

LABEL = "dcm.amd.com/gpu-config-profile"
STATE = "dcm.amd.com/gpu-config-profile-state"


@dataclass
class _Run:
    """A request at work. `due` is when its attempt ends, or the next one begins."""

    profile: str
    began: float
    due: float
    is_working: bool = True
    is_cancelled: bool = False
    attempts: int = 0
    gpus: list[dict[str, object]] = field(default_factory=list)


@dataclass
class FakeConfigManager:
    """`profiles` have the modes of every GPU. `write` sets its label, `tell` sends an Event: reason and message."""

    sysfs: FakeSysfs
    profiles: Mapping[str, list[tuple[str, str]]]
    write: Callable[[str, str], object]
    tell: Callable[[str, str], object]
    work_seconds: float = 30.0
    retry_seconds: float = 60.0
    give_up_seconds: float = 1800.0
    is_silent: bool = False
    skips: frozenset[int] = frozenset()
    """GPUs that it does not change, and calls changed all the same."""
    services: frozenset[int] = frozenset()
    """The processes of the host's services that it stops while it works."""
    _seen: str | None = None
    _queued: str | None = None
    _next: str | None = None
    _run: _Run | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Whether it works on nothing, and nothing waits."""
        return self._run is None and self._next is None and self._queued is None

    @property
    def is_harmless(self) -> bool:
        """Whether what it works on, and what waits, changes no GPU: they have the modes already."""
        modes = [(gpu.compute, gpu.memory) for gpu in self.sysfs.gpus]
        known = (None if self._run is None else self._run.profile, self._next, self._queued)
        return all(self.profiles.get(one) in (None, modes) for one in known if one is not None)

    def start(self, label: str | None, now: float) -> None:
        """Its pod starts: after a boot of the node, too."""
        self.stop()
        self.look(label, now)

    def stop(self) -> None:
        """Its pod ends, with all that it was doing."""
        self._seen = self._queued = self._next = self._run = None

    def read(self, profiles: Mapping[str, list[tuple[str, str]]]) -> None:
        """Its file changes."""
        self.profiles = profiles
        if self._seen is not None:
            self._request(self._seen)

    def look(self, label: str | None, now: float) -> None:
        """It sees the node's label at this time, and works."""
        if label is not None and label != self._seen:
            self._request(label)
        self._seen = label
        if not self.is_silent:
            self._work(now)

    def _request(self, label: str) -> None:
        self.asked.append(label)
        self._queued = self._queued or label

    def _work(self, now: float) -> None:
        if self._run is not None and self._run.is_working and now >= self._run.due:
            self._end_attempt(self._run, now)
        if self._next is None and self._queued is not None:
            self._next, self._queued = self._queued, None
            if self._run is not None:
                self._run.is_cancelled = True
        if self._run is not None and self._run.is_cancelled and not self._run.is_working:
            self._run = None
        if self._run is None and self._next is not None:
            self._run, self._next = _Run(profile=self._next, began=now, due=now), None
            self._begin_attempt(self._run, now)
        elif self._run is not None and not self._run.is_working and now >= self._run.due:
            self._begin_attempt(self._run, now)

    def _begin_attempt(self, run: _Run, now: float) -> None:
        if now - run.began > self.give_up_seconds:
            self._tell("PartitionFailure", run, "Failure", "Partition failed")
            self._end_run()
            return
        for pid in self.services & self.sysfs.processes.keys():
            self.sysfs.end(pid)
        if run.profile not in self.profiles:
            self._tell("NonExistentProfile", run, "Failure", "Profile does not exist in the configmap")
            self.write(STATE, "failure")
            self._end_run()
            return
        run.is_working, run.due = True, now + self.work_seconds

    def _end_attempt(self, run: _Run, now: float) -> None:
        has_failed = self._apply(run)
        run.attempts += 1
        if not has_failed:
            self._tell("SuccessfullyPartitioned", run, "Success", "All GPUs were successfully partitioned")
            self.write(STATE, "success")
            self._end_run()
            return
        self.write(STATE, "failure")
        if run.attempts == 1:
            self._tell(
                "PartitionRetrying", run, "Partition failed, retrying.", f"Partition retrying for profile: {run.profile}"
            )
        run.is_working, run.due = False, now + self.retry_seconds

    def _end_run(self) -> None:
        self._run = None
        for pid in self.services:
            self.sysfs.start(pid)

    def _apply(self, run: _Run) -> bool:
        """Change the GPUs, and return whether one has refused: then it says the same of all after that one."""
        reason = ""
        run.gpus = []
        for number, (compute, memory) in enumerate(self.profiles[run.profile]):
            gpu = self.sysfs.gpus[number]
            try:
                if number not in self.skips and gpu.memory != memory:
                    self.sysfs.set_memory(number, memory)
                if number not in self.skips and gpu.compute != compute:
                    self.sysfs.set_compute(number, compute)
            except RefusedError as error:
                reason = f"Partition failed with reason: {error}"
            status = {"Status": "Failure" if reason else "Success", "Message": reason or "Successfully partitioned"}
            run.gpus.append({"GpuID": number, "PartitionType": f"{compute}-{memory}", **status})
        return bool(reason)

    def _tell(self, event: str, run: _Run, status: str, reason: str) -> None:
        document = {"SelectedProfile": run.profile, "FinalStatus": status, "Reason": reason, "GPUStatus": run.gpus or None}
        self.tell(event, json.dumps(document))
