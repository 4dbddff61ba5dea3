"""BoundedDriver: the driver for callers that must not hang: every call runs on another thread and has a deadline.

Whom a call concerns, a GPU or the node, is not called again until that call has returned; everybody else is. Owns the threads,
the session's lifetime while a driver is being replaced, and the XIDs received. Does not decide what a hung GPU means:
`hung_seconds` reports it.

Each GPU is read at its own pace: one that answers slowly is not waited for, and is read so much less often.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import Clock
from gpushare_node.core.worker import Future, Worker
from gpushare_node.guard.process_list import Device
from gpushare_node.partition.state import Fault, FaultKind
from gpushare_node.vendors.driver import (
    ABSENT,
    SESSION_OVER,
    Code,
    Driver,
    DriverError,
    GpuInfo,
    Partitionable,
    Versions,
    Xid,
)

NODE = "node"
"""The name for calls that do not concern a single GPU."""

_LOG = logging.getLogger(__name__)

_SLOW_SECONDS = 0.1
"""A GPU whose last reading took longer is read beside the others, and its answer is not waited for."""

_PACE = (5.0, 15.0)
"""The pause after a slow reading is so many times as long, at random: the driver holds a lock meanwhile."""

_MAX_PAUSE_SECONDS = 15.0

CALL_SECONDS = 5.0
LOOK_SECONDS = 60.0
"""For a caller with a single session and time: a survey of a busy node takes seconds."""

CHANGE_SECONDS = 120.0
"""A mode change resets the GPU, which takes up to half a minute."""

_CHANGES = frozenset(vars(Partitionable)) | {"reset_compute_mode"}
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 1.0, 30.0
_RENEWAL_SECONDS = 60.0
"""The minimum time between two sessions that end because one GPU rejects its handle: another program may have switched its MIG
mode, and only a new session certainly has new handles; or the GPU is faulty, and the others must not lose every second cycle to
it."""

_LISTEN_MS = 1000
_MAX_XIDS = 64
"""The limit for one cycle: a GPU that falls off its bus must not keep the listener busy forever."""

T = TypeVar("T")
_Answer: TypeAlias = T | BaseException


class _Calls:
    """Threads that make calls: one as long as no call hangs, because a thread for each GPU costs six times the CPU time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._workers: list[Worker] = []
        self._running: dict[str, tuple[Worker, Future[Any]]] = {}

    def start(self, name: str, job: Callable[[], T]) -> "Future[_Answer[T]] | None":
        """Start a call; None while the last one of this name has not returned. The result is an exception if it raised one."""
        if name in self.late():
            return None
        worker = next((one for one in self._workers if not one.is_busy), None)
        if worker is None:
            worker = Worker("driver", self._clock)
            self._workers.append(worker)
        future = worker.start(partial(_try, job))
        if future is not None:
            self._running[name] = (worker, future)
        return future

    def each(self, jobs: Mapping[str, Callable[[], T]], seconds: float) -> "dict[str, _Answer[T]]":
        """Return the results that came in time: one call after another until one hangs, then all others at the same time."""
        found: dict[str, _Answer[T]] = {}
        names = [name for name in jobs if name not in self.late()]
        for number, name in enumerate(names):
            future = self.start(name, jobs[name])
            if future is not None and future.wait(seconds):
                found[name] = future.value
                continue
            rest = [(other, self.start(other, jobs[other])) for other in names[number + 1 :]]
            deadline = time.monotonic() + seconds
            for other, started in rest:
                if started is not None and started.wait(max(0.0, deadline - time.monotonic())):
                    found[other] = started.value
            break
        return found

    def late(self) -> dict[str, float]:
        """Return the names of calls that have not returned, and since how many seconds they run."""
        self._running = {name: call for name, call in self._running.items() if not call[1].wait()}
        return {name: worker.busy_seconds() for name, (worker, _) in self._running.items()}

    def stop(self) -> None:
        """End the threads."""
        for worker in self._workers:
            worker.stop()


class BoundedDriver:
    """The driver, for calls from one thread.

    `open_driver` opens a session. `open` does so once, for a caller that changes GPUs and closes its session itself; every
    other method does at the first use and again after the driver was replaced, with 1 to 30 s between attempts.
    """

    def __init__(
        self,
        open_driver: Callable[[], Driver],
        *,
        clock: Clock,
        deadline_seconds: float = CALL_SECONDS,
        change_seconds: float = CHANGE_SECONDS,
    ) -> None:
        self._open_driver = open_driver
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._change_seconds = change_seconds
        self._driver: Driver | None = None
        self._problem = DriverError("nvmlInit", Code.TIMEOUT)
        self._next_open = clock.now()
        self._wait_seconds = _FIRST_WAIT_SECONDS
        self._next_renewal = clock.now()
        self._is_over = False
        self._calls = _Calls(clock)
        self._surveys: dict[int, Future[_Answer[GpuInfo]]] = {}
        self._surveyed: dict[int, GpuInfo] = {}
        self._listener = Worker("xids", clock)
        self._pending_xids: Future[_Answer[tuple[Xid, ...]]] | None = None
        self._xids_unsupported = False
        self._xids: list[Xid] = []
        self._last: dict[str, Device] = {}
        self._troubles: dict[str, DriverError] = {}
        self._seconds: dict[str, float] = {}
        self._aside: dict[str, Future[_Answer[Device]]] = {}
        self._due: dict[str, float] = {}
        self._garbage: dict[str, str] = {}

    def open(self) -> Driver:
        """Open a session whose calls return in time or raise TIMEOUT. DriverError; TIMEOUT while an earlier call hangs."""
        return cast("Driver", _Session(self.call, self.call("open", self._open_driver)))

    def call(self, name: str, job: Callable[[], T]) -> T:
        """Return what the job returns, or raise what it raises; DriverError with TIMEOUT if it has not ended in time."""
        future = self._calls.start(NODE, job)
        if future is None or not future.wait(self._change_seconds if name in _CHANGES else self._deadline_seconds):
            raise DriverError(name, Code.TIMEOUT)
        return _take(future.value)

    def read_devices(self, uuids: Iterable[str]) -> Mapping[str, Device]:
        """Return each GPU now. One that failed, or did not answer in time, has no rows, but the rest that is known of it.

        A slow one is pending until its answer has come.
        """
        desired = tuple(uuids)
        driver = self._session()
        if driver is None:
            self._troubles = dict.fromkeys(desired, self._problem)
            self._aside.clear()
            return {uuid: self._show(uuid) for uuid in desired}
        slow = {uuid for uuid in desired if uuid in self._aside or self._seconds.get(uuid, 0.0) > _SLOW_SECONDS}
        jobs = {uuid: partial(self._read, driver, uuid) for uuid in desired}
        found = self._calls.each({uuid: job for uuid, job in jobs.items() if uuid not in slow}, self._deadline_seconds)
        answers = {uuid: found.get(uuid, DriverError("read_device", Code.TIMEOUT)) for uuid in desired if uuid not in slow}
        for uuid in sorted(slow):
            answer = self._read_aside(uuid, jobs[uuid])
            if answer is not None:
                answers[uuid] = answer
        self._note(answers, slow - answers.keys())
        self._listen(driver)
        return {uuid: self._show(uuid, is_pending=uuid not in answers) for uuid in desired}

    def ask(self, name: str, question: Callable[[Driver], T]) -> T:
        """Return the result of a call that concerns the whole node, or changes something.

        DriverError as from the driver; TIMEOUT, under `name`, if it did not return in time or the last call has not returned.
        """
        driver = self._session()
        if driver is None:
            # A new exception: one that is raised repeatedly collects a traceback each time.
            raise DriverError(self._problem.call, self._problem.code)
        try:
            return self.call(name, lambda: question(driver))
        except DriverError as problem:
            self._note_session_error(problem)
            raise

    def survey(self, *, wait_seconds: float) -> tuple[Versions, tuple[GpuInfo, ...]] | None:
        """Return versions and every GPU, each surveyed by itself; None if some need longer: call again for a later answer.

        One that does not answer within the deadline has a fault, and no further survey waits for it. DriverError.
        """
        versions, count = self.ask("survey", lambda driver: (driver.versions(), driver.count()))
        driver = self._session()
        if driver is None:
            raise DriverError(self._problem.call, self._problem.code)
        for index in range(count):
            future = None if index in self._surveys else self._calls.start(f"GPU {index}", partial(driver.survey_gpu, index))
            if future is not None:
                self._surveys[index] = future
        deadline = time.monotonic() + wait_seconds
        for future in self._surveys.values():
            future.wait(max(0.0, deadline - time.monotonic()))
        late = self._calls.late()
        if any(late.get(f"GPU {index}", self._deadline_seconds) < self._deadline_seconds for index in range(count)):
            return None
        return versions, tuple(self._survey_of(index) for index in range(count))

    def hung_seconds(self) -> Mapping[str, float]:
        """Return how long overdue calls have been running: by UUID, `GPU <index>` if the UUID was never read, and `NODE`."""
        late = {name: seconds for name, seconds in self._calls.late().items() if seconds > self._deadline_seconds}
        for index, known in self._surveyed.items():
            if f"GPU {index}" in late:
                late[known.uuid] = max(late.pop(f"GPU {index}"), late.get(known.uuid, 0.0))
        return late

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
        found = tuple(self._xids)
        self._xids.clear()
        return found

    def close(self) -> None:
        """End threads and session.

        A session in which a call hangs stays open: closing it might crash, and waiting for it might take forever.
        """
        self._is_over = True
        if self._pending_xids is not None:
            self._pending_xids.wait(self._deadline_seconds)
        self._end_session()
        self._calls.stop()
        self._listener.stop()

    def _survey_of(self, index: int) -> GpuInfo:
        """Return what the last survey of this GPU says; that it does not answer, if it has not returned."""
        future = self._surveys.get(index)
        former = self._surveyed.get(index)
        detail = "the driver does not answer calls for it"
        if future is not None and future.wait():
            del self._surveys[index]
            if isinstance(future.value, GpuInfo | DriverError):
                self._surveyed[index] = _take(future.value)
                return self._surveyed[index]
            detail = f"the driver answers what no driver does: {type(future.value).__name__}: {future.value}"
        fault = Fault(kind=FaultKind.UNREADABLE, detail=detail)
        return GpuInfo(
            index=index, uuid=former.uuid if former else f"unknown-{index}", name=former.name if former else "", fault=fault
        )

    def _read(self, driver: Driver, uuid: str) -> Device:
        """On a worker's thread. A call that hung says nothing about the pace of the GPU."""
        began = self._clock.now()
        try:
            return driver.read_device(uuid)
        finally:
            seconds = self._clock.now() - began
            self._seconds[uuid] = seconds if seconds <= self._deadline_seconds else 0.0

    def _read_aside(self, uuid: str, job: Callable[[], Device]) -> "_Answer[Device] | None":
        """Return what has come of a slow GPU's reading; None if there is no news. Start the next one if it is due."""
        if self._calls.late().get(uuid, 0.0) > self._deadline_seconds:
            self._aside.pop(uuid, None)
            return DriverError("read_device", Code.TIMEOUT)
        future = self._aside.get(uuid)
        if future is not None and future.wait():
            del self._aside[uuid]
            pause = self._seconds[uuid] * random.SystemRandom().uniform(*_PACE)
            self._due[uuid] = self._clock.now() + min(pause, _MAX_PAUSE_SECONDS)
            return future.value
        if future is None and self._clock.now() >= self._due.get(uuid, 0.0):
            started = self._calls.start(uuid, job)
            if started is not None:
                self._aside[uuid] = started
        return None

    def _note(self, answers: "Mapping[str, _Answer[Device]]", pending: Collection[str]) -> None:
        """Keep the answers. What is no answer of a driver is unknown, for this GPU only."""
        self._troubles = {uuid: trouble for uuid, trouble in self._troubles.items() if uuid in pending}
        for uuid, found in answers.items():
            if isinstance(found, Device):
                self._last[uuid] = found
                self._wait_seconds = _FIRST_WAIT_SECONDS
                continue
            answer = found
            if not isinstance(answer, DriverError):
                answer = DriverError("read_device", Code.NO_ANSWER, f"{type(found).__name__}: {found}")
                if str(answer) != self._garbage.get(uuid):
                    self._garbage[uuid] = str(answer)
                    _LOG.error("GPU %s cannot be read: %s", uuid, answer, exc_info=found)
            self._troubles[uuid] = answer
            self._note_session_error(answer)
            if answer.code == Code.INVALID_ARGUMENT and self._clock.now() >= self._next_renewal:
                self._next_renewal = self._clock.now() + _RENEWAL_SECONDS
                self._problem = answer
                self._is_over = True

    def _show(self, uuid: str, *, is_pending: bool = False) -> Device:
        last = self._last.get(uuid)
        if last is None:
            return Device(uuid=uuid, total_bytes=None, rows=None)
        if uuid in self._troubles:
            return replace(last, rows=None, used_bytes=None)
        return replace(last, rows=None, is_pending=True) if is_pending else last

    def _listen(self, driver: Driver) -> None:
        """Collect the XIDs received, and let the listener wait for more until the next cycle."""
        if self._pending_xids is not None:
            if not self._pending_xids.wait():
                return
            found = self._pending_xids.value
            if isinstance(found, tuple):
                self._xids.extend(found)
            else:
                self._xids_unsupported = isinstance(found, DriverError) and found.code in ABSENT
        waits = not self._xids_unsupported and not self._is_over
        self._pending_xids = self._listener.start(partial(_try, partial(_poll_xids, driver))) if waits else None

    def _note_session_error(self, problem: DriverError) -> None:
        if problem.code in SESSION_OVER:
            self._problem = problem
            self._is_over = True

    def _session(self) -> Driver | None:
        """Return the open session; None while there is none, or while a call of the former session has not returned."""
        if self._is_over:
            self._end_session()
        if self._driver is None and self._clock.now() >= self._next_open:
            self._run(self._reopen)
        return None if self._is_over else self._driver

    def _end_session(self) -> None:
        """Close the session that is over, once no thread is in one of its calls."""
        if self._driver is None or self._calls.late() or self._listener.is_busy:
            return
        driver, self._driver = self._driver, None
        self._pending_xids = None
        self._surveys.clear()
        self._run(driver.close)
        self._is_over = self._xids_unsupported = False
        self._back_off()

    def _reopen(self) -> None:
        """Open a session, on another thread: one that opens after the deadline is still used."""
        try:
            self._driver = self._open_driver()
        except DriverError as problem:
            self._problem = problem
            self._back_off()

    def _back_off(self) -> None:
        self._next_open = self._clock.now() + self._wait_seconds
        self._wait_seconds = min(2 * self._wait_seconds, _MAX_WAIT_SECONDS)

    def _run(self, job: Callable[[], None]) -> None:
        future = self._calls.start(NODE, job)
        if future is not None:
            future.wait(self._deadline_seconds)


class _Session:
    """Every method of an open Driver, with a deadline. After a call that did not return, it makes no further call."""

    def __init__(self, bound: Callable[[str, Callable[[], Any]], Any], driver: Driver) -> None:
        self._bound = bound
        self._driver = driver
        self._is_hung = False

    def __getattr__(self, call: str) -> Callable[..., Any]:
        method = getattr(self._driver, call)

        def bounded(*args: object, **named: object) -> Any:
            if self._is_hung:
                raise DriverError(call, Code.TIMEOUT)
            try:
                return self._bound(call, partial(method, *args, **named))
            except DriverError as error:
                self._is_hung = error.code == Code.TIMEOUT
                raise

        return bounded


def _try(job: Callable[[], T]) -> "_Answer[T]":
    """Return the result, or the exception as a value: it is raised where it is waited for."""
    try:
        return job()
    except BaseException as problem:
        return problem


def _take(answer: "_Answer[T]") -> T:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _poll_xids(driver: Driver) -> tuple[Xid, ...]:
    received: list[Xid] = []
    found = driver.next_xid(_LISTEN_MS)
    while found is not None and len(received) < _MAX_XIDS:
        received.append(found)
        found = driver.next_xid(0)
    return tuple(received)
