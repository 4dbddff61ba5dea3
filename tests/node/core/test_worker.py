"""The thread of the slow calls: what fails is logged, what is stopped is not, and the thread serves the next job."""

import threading

import pytest

from gpushare_node.core.clock import Stopped
from gpushare_node.core.worker import WorkQueue
from tests.support.waiting import wait_for


def test_failing_job_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    queue, done = WorkQueue(), threading.Event()

    def fail() -> None:
        raise ValueError("unexpected")

    queue.send(fail)
    queue.send(done.set)
    wait_for(done.is_set)
    assert "a job failed" in caplog.text


def test_stopped_job_ends_the_thread_silently(caplog: pytest.LogCaptureFixture) -> None:
    """At the end of the program a call that waits for the API server to come back stops waiting."""
    queue, threads = WorkQueue(), []

    def stop() -> None:
        threads.append(threading.current_thread())
        raise Stopped

    queue.send(stop)
    wait_for(lambda: bool(threads) and not threads[0].is_alive())
    assert caplog.text == ""
