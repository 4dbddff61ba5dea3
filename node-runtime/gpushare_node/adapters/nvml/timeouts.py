"""DriverWithTimeouts: a driver whose calls return in time, or fail with TIMEOUT. The partitioner makes one call at a time.

Owns how long a call may take. One thread makes all calls; while it is stuck in one, no session answers and none can be opened,
so that a driver that hangs costs one thread, however often it is called.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from gpushare_node.adapters.nvml.driver import Code, Driver, DriverError
from gpushare_node.core.clock import Clock
from gpushare_node.core.worker import Worker

LOOK_SECONDS = 60.0
"""A survey of a busy node takes seconds."""
CHANGE_SECONDS = 120.0
"""A mode change resets the GPU, which takes up to half a minute."""

_CHANGES = frozenset({
    "set_mig", "create_instance", "create_compute", "destroy_compute", "destroy_instance", "reset_compute_mode",
})

_T = TypeVar("_T")
_Answer = tuple[_T | None, BaseException | None]


class DriverWithTimeouts:
    """Opens sessions in which every call has a deadline, in real seconds: a driver does not know another clock."""

    def __init__(
        self, open_driver: Callable[[], Driver], clock: Clock, *,
        look_seconds: float = LOOK_SECONDS, change_seconds: float = CHANGE_SECONDS,
    ) -> None:
        self._open = open_driver
        self._worker = Worker("driver", clock)
        self._look_seconds = look_seconds
        self._change_seconds = change_seconds

    def open(self) -> Driver:
        """Open a session. DriverError; with TIMEOUT while an earlier call still hangs."""
        return cast("Driver", _Session(self, self.ask("open", self._open)))

    def ask(self, call: str, job: Callable[[], _T]) -> _T:
        """Return or raise what the job returns or raises; DriverError with TIMEOUT if it has not ended in time."""

        def answer() -> "_Answer[_T]":
            try:
                return job(), None
            except BaseException as error:  # raised where it is waited for
                return None, error

        future = self._worker.start(answer)
        if future is None or not future.wait(self._change_seconds if call in _CHANGES else self._look_seconds):
            raise DriverError(call, Code.TIMEOUT)
        value, error = future.value
        if error is not None:
            raise error
        return cast("_T", value)


class _Session:
    """Every method of a Driver, with a deadline. After a call that did not return, this session makes no further call."""

    def __init__(self, bounded: DriverWithTimeouts, driver: Driver) -> None:
        self._bounded = bounded
        self._driver = driver
        self._is_hung = False

    def __getattr__(self, call: str) -> Callable[..., Any]:
        method = getattr(self._driver, call)

        def bounded(*args: object, **named: object) -> Any:
            if self._is_hung:
                raise DriverError(call, Code.TIMEOUT)
            try:
                return self._bounded.ask(call, lambda: method(*args, **named))
            except DriverError as error:
                self._is_hung = error.code == Code.TIMEOUT
                raise

        return bounded
