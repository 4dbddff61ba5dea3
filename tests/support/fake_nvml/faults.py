"""What goes wrong with the fake GPUs, as a test wants it, and the record of what the program under test did to them."""

import ctypes
from collections.abc import Iterable

from tests.support.fake_nvml import build, layout
from tests.support.fake_nvml.state_file import StateFile


class Faults(StateFile):
    """Injected codes, delays, missing symbols, lost GPUs, faults of the driver, planned deaths; and the log of mutations."""

    def fail(self, function: str, code: int, *, times: int = -1, after: int = 0, gpu: int | None = None) -> None:
        """The NVML symbol answers this code from its call `after` on, `times` times (-1: forever), for one GPU or all."""
        self._inject(function, gpu, code=code, times=times, after=after)

    def delay(self, function: str, seconds: float, *, times: int = -1, after: int = 0, gpu: int | None = None) -> None:
        """The NVML symbol takes so long; `heal` ends calls that hang."""
        self._inject(function, gpu, delay_ms=int(seconds * 1000), times=times, after=after)

    def miss(self, *functions: str) -> None:
        """The driver has no such symbols: who loads it from now on finds none, who has loaded it gets FUNCTION_NOT_FOUND."""
        self._missing |= _known(functions)
        for function in functions:
            self.fail(function, 13)
        self._link()

    def heal(self) -> None:
        """No injected failure or delay any more. What `miss` took away stays away."""
        with self._alone() as state:
            for fault in state.faults:
                fault.active = fault.active and fault.function.decode() in self._missing

    def _inject(self, function: str, gpu: int | None, **fields: int) -> None:
        _known((function,))
        with self._alone() as state:
            fault = next(fault for fault in state.faults if not fault.active)
            wanted = layout.VIEWS["fault"](function=function.encode(), active=1, gpu=-1 if gpu is None else gpu, **fields)
            ctypes.memmove(ctypes.addressof(fault), ctypes.addressof(wanted), ctypes.sizeof(wanted))

    def lose(self, gpu: int) -> None:
        """The GPU has fallen off the bus: GPU_IS_LOST."""
        self._set(gpu, lost=1)

    def find(self, gpu: int) -> None:
        """The lost GPU is back."""
        self._set(gpu, lost=0)

    def unload(self, code: int = 9) -> None:
        """nvmlInit answers this: 9, no driver; 18, library and kernel module of different versions."""
        with self._alone() as state:
            state.init_code = code

    def reload(self) -> None:
        """nvmlInit works again."""
        self.unload(0)

    def ask_for_privilege(self, asked: bool = True) -> None:
        """Without CAP_SYS_ADMIN nobody may change anything, nor list all instances' processes. Not asked for at first."""
        with self._alone() as state:
            state.needs_privilege = asked

    def recovery(self, gpu: int, action: int) -> None:
        """What field 230 tells: 0 nothing, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset."""
        self._set(gpu, recovery_action=action)

    def xid(self, gpu: int, xid: int, *, gi: int | None = None, ci: int = 0) -> None:
        """The driver logs a fault; event sets that are registered hear of it."""
        with self._alone() as state:
            event = state.events[state.event_count % layout.EVENTS]
            event.gpu, event.xid = gpu, xid
            event.gi, event.ci = (layout.NO_INSTANCE, layout.NO_INSTANCE) if gi is None else (gi, ci)
            state.event_count += 1

    # --- what the program did, and its death ---

    def calls(self) -> list[str]:
        """The mutating calls that arrived, refused ones too: `nvmlDeviceSetMigMode(0,1)`."""
        count = self._state.call_count
        assert count <= layout.CALLS, "more calls than the log holds"
        return [call.text.decode() for call in self._state.calls[:count]]

    def forget_calls(self) -> None:
        """Begin a new log."""
        with self._alone() as state:
            state.call_count = 0

    def kill_after(self, number: int) -> None:
        """Whoever makes the mutating call of this number, from 1, dies by SIGKILL when it is done; 0: nobody."""
        with self._alone() as state:
            state.kill_after = number

    def kill_before(self, number: int) -> None:
        """Likewise before the call has done anything."""
        with self._alone() as state:
            state.kill_before = number

    def offer_limits(self, offered: bool = True) -> None:
        """Whether the driver has the calls for memory limits of cgroups (R615). For processes that load it from now on."""
        self._missing = self._missing - build.MEMORY_LIMITS if offered else self._missing | build.MEMORY_LIMITS
        self._link()


def _known(functions: Iterable[str]) -> frozenset[str]:
    """A misspelt symbol would make a test that cannot fail."""
    unknown = set(functions) - build.symbols()
    if unknown:
        raise ValueError(f"the library has no {', '.join(sorted(unknown))}")
    return frozenset(functions)
