"""SupervisedDriver: a driver session that cannot hang the program: every call runs on another thread, with a deadline.

A GPU that does not answer has no rows in that cycle and is not queried until its call has returned; the others continue. Owns
the threads, the session's lifetime while a driver is being replaced, and the XIDs received. Does not decide what a hung GPU
means: `hung_seconds` reports it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from gpushare_node.adapters.nvml.driver import Code, Driver, DriverError, Xid
from gpushare_node.adapters.nvml.gpu_poller import GpuPoller
from gpushare_node.adapters.nvml.library import ABSENT, SESSION_OVER
from gpushare_node.core.clock import Clock
from gpushare_node.core.structs import replace
from gpushare_node.core.worker import Future, Worker
from gpushare_node.guard.process_list import Device

NODE = "node"
"""The name for calls that do not concern a single GPU."""

_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 1.0, 30.0
_RENEWAL_SECONDS = 60.0
"""The minimum time between two sessions that end because one GPU rejects its handle: another program may have switched its MIG
mode, and only a new session certainly has new handles; or the GPU is faulty, and the others must not lose every second cycle to
it."""

_LISTEN_MS = 1000
_MAX_XIDS = 64
"""The limit for one cycle: a GPU that falls off its bus must not keep the listener busy forever."""

T = TypeVar("T")


class SupervisedDriver:
    """The driver as the enforcement loop uses it, from one thread.

    `open_driver` opens a session, at the first use and again after the driver was replaced, with 1 to 30 s between attempts.
    """

    def __init__(self, open_driver: Callable[[], Driver], *, clock: Clock, deadline_seconds: float = 5.0) -> None:
        self._open_driver = open_driver
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._driver: Driver | None = None
        self._problem = DriverError("nvmlInit", Code.TIMEOUT)
        self._next_open = clock.now()
        self._wait_seconds = _FIRST_WAIT_SECONDS
        self._next_renewal = clock.now()
        self._is_over = False
        self._poller: GpuPoller[Device | DriverError] = GpuPoller(clock, deadline_seconds=deadline_seconds)
        self._whole = Worker(NODE, clock)
        self._late: Future[Any] | None = None
        self._listener = Worker("xids", clock)
        self._heard: Future[tuple[Xid, ...] | DriverError] | None = None
        self._is_deaf = False
        self._xids: list[Xid] = []
        self._last: dict[str, Device] = {}
        self._troubles: dict[str, DriverError] = {}

    def read_devices(self, uuids: Iterable[str]) -> Mapping[str, Device]:
        """Return each GPU now. One that failed, or did not answer in time, has no rows, but the rest that is known of it."""
        wanted = tuple(uuids)
        driver = self._session()
        if driver is None:
            self._troubles = dict.fromkeys(wanted, self._problem)
        else:
            found = self._poller.take(wanted, lambda uuid: _try(lambda driver: driver.read_device(uuid), driver))
            self._note({uuid: found.get(uuid) or DriverError("read_device", Code.TIMEOUT) for uuid in wanted})
            self._listen(driver)
        return {uuid: self._show(uuid) for uuid in wanted}

    def ask(self, name: str, question: Callable[[Driver], T]) -> T:
        """Return the result of a call that concerns the whole node, or changes something.

        DriverError as from the driver; TIMEOUT, under `name`, if it did not return in time or the last call has not returned.
        """
        driver = self._session()
        if driver is None:
            # A new exception: one that is raised repeatedly collects a traceback each time.
            raise DriverError(self._problem.call, self._problem.code)
        future = self._whole.start(partial(_try, question, driver))
        if future is None or not future.wait(self._deadline_seconds):
            raise DriverError(name, Code.TIMEOUT)
        return self._take(future.value)

    def ask_patiently(self, name: str, question: Callable[[Driver], T], *, wait_seconds: float) -> T | None:
        """Like `ask`, for calls that may take longer than a cycle: None while there is no result; the caller then calls again.

        Only the first call waits for the result. Only one such question may be pending.
        """
        driver = self._session()
        if driver is None:
            raise DriverError(self._problem.call, self._problem.code)
        if self._late is None:
            self._late = self._whole.start(partial(_try, question, driver))
            if self._late is None:
                raise DriverError(name, Code.TIMEOUT)
            self._late.wait(wait_seconds)
        if not self._late.wait():
            return None
        answer: T | DriverError = self._late.value
        self._late = None
        return self._take(answer)

    def hung_seconds(self) -> Mapping[str, float]:
        """Return how long overdue calls have been running: by UUID, and `NODE`."""
        seconds = self._whole.busy_seconds()
        return self._poller.hung_seconds() | ({NODE: seconds} if seconds > self._deadline_seconds else {})

    def troubles(self) -> Mapping[str, DriverError]:
        """Return why GPUs of the last reading have no rows."""
        return dict(self._troubles)

    def unreliable(self) -> frozenset[str]:
        """Return the GPUs whose process lists this driver may scramble."""
        return frozenset() if self._driver is None else self._driver.unreliable()

    def refresh(self) -> None:
        """Make the next reading list the instances of all GPUs again."""
        if self._driver is not None:
            self._driver.refresh()

    def xids(self) -> tuple[Xid, ...]:
        """Return the XIDs reported since the last call. The listener waits for them from one reading to the next."""
        heard = tuple(self._xids)
        self._xids.clear()
        return heard

    def close(self) -> None:
        """End threads and session.

        A session in which a call hangs stays open: closing it might crash, and waiting for it might take forever.
        """
        self._is_over = True
        if self._heard is not None:
            self._heard.wait(self._deadline_seconds)
        self._end_session()
        self._poller.stop()
        self._whole.stop()
        self._listener.stop()

    def _take(self, answer: T | DriverError) -> T:
        if isinstance(answer, DriverError):
            self._heed(answer)
            raise answer
        return answer

    def _note(self, answers: Mapping[str, Device | DriverError]) -> None:
        self._troubles = {}
        for uuid, answer in answers.items():
            if isinstance(answer, DriverError):
                self._troubles[uuid] = answer
                self._heed(answer)
                if answer.code == Code.INVALID_ARGUMENT and self._clock.now() >= self._next_renewal:
                    self._next_renewal = self._clock.now() + _RENEWAL_SECONDS
                    self._problem = answer
                    self._is_over = True
            else:
                self._last[uuid] = answer
                self._wait_seconds = _FIRST_WAIT_SECONDS

    def _show(self, uuid: str) -> Device:
        last = self._last.get(uuid)
        if last is None:
            return Device(uuid=uuid, total_bytes=None, rows=None)
        return replace(last, rows=None, used_bytes=None) if uuid in self._troubles else last

    def _listen(self, driver: Driver) -> None:
        """Collect the XIDs received, and let the listener wait for more until the next cycle."""
        if self._heard is not None:
            if not self._heard.wait():
                return
            heard = self._heard.value
            if isinstance(heard, DriverError):
                self._is_deaf = heard.code in ABSENT
            else:
                self._xids.extend(heard)
        waits = not self._is_deaf and not self._is_over
        self._heard = self._listener.start(partial(_try, _hear, driver)) if waits else None

    def _heed(self, problem: DriverError) -> None:
        if problem.code in SESSION_OVER:
            self._problem = problem
            self._is_over = True

    def _session(self) -> Driver | None:
        """Return the open session; None while there is none, or while a call of the former session has not returned."""
        if self._is_over:
            self._end_session()
        if self._driver is None and self._clock.now() >= self._next_open:
            self._run_whole(self._open)
        return None if self._is_over else self._driver

    def _end_session(self) -> None:
        """Close the session that is over, once no thread is in one of its calls."""
        if self._driver is None or self._poller.is_busy or self._whole.is_busy or self._listener.is_busy:
            return
        driver, self._driver = self._driver, None
        self._heard = self._late = None
        self._run_whole(driver.close)
        self._is_over = self._is_deaf = False
        self._back_off()

    def _open(self) -> None:
        """Open a session, on the worker `_whole`: a session that opens after the deadline is still used."""
        try:
            self._driver = self._open_driver()
        except DriverError as problem:
            self._problem = problem
            self._back_off()

    def _back_off(self) -> None:
        self._next_open = self._clock.now() + self._wait_seconds
        self._wait_seconds = min(2 * self._wait_seconds, _MAX_WAIT_SECONDS)

    def _run_whole(self, job: Callable[[], None]) -> None:
        future = self._whole.start(job)
        if future is not None:
            future.wait(self._deadline_seconds)


def _try(question: Callable[[Driver], T], driver: Driver) -> T | DriverError:
    """Return the result, or the error as a value, because threads pass values."""
    try:
        return question(driver)
    except DriverError as problem:
        return problem


def _hear(driver: Driver) -> tuple[Xid, ...]:
    heard: list[Xid] = []
    found = driver.next_xid(_LISTEN_MS)
    while found is not None and len(heard) < _MAX_XIDS:
        heard.append(found)
        found = driver.next_xid(0)
    return tuple(heard)
