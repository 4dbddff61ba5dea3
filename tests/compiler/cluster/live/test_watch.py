"""`gpushare status --watch`: it looks again, survives a server that is away, and ends at an interrupt with 130."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compiler.cluster.live.clusters import LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.support.fake_api.server import ApiServer
from tests.support.waiting import PATIENCE, wait_for

SOON = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from gpushare.cli import live
live._WATCH_SECONDS = 0.05
from gpushare.cli import main
main()
"""
"""A shell starts what it puts into the background with SIGINT ignored; so may the tests be running."""
Watch = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def watch(api: ApiServer, tmp_path: Path) -> Iterator[Watch]:
    """`status --watch` that looks every 50 ms; its output goes to files in the folder."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, **api.kubeconfig(tmp_path / "kubeconfig"), "PYTHONUTF8": "1"}

    def run(**streams: object) -> subprocess.Popen[bytes]:
        files = {"stdout": (tmp_path / "out").open("wb"), "stderr": (tmp_path / "err").open("wb")}
        command = [sys.executable, "-c", SOON, "status", "--watch"]
        with files["stdout"], files["stderr"]:
            started.append(subprocess.Popen(command, env=environment, cwd=tmp_path, **{**files, **streams}))  # type: ignore[call-overload]
        return started[-1]

    yield run
    for one in started:
        one.kill()
        one.wait(PATIENCE)


def test_watch_shows_changes_until_interrupted(live: LiveCluster, watch: Watch, tmp_path: Path) -> None:
    running = watch()
    wait_for(lambda: "GPUBusy" in (tmp_path / "out").read_text())
    live.say("t4-2", "CardMismatch", "GPU 0 is a Tesla V100")
    wait_for(lambda: "Tesla V100" in (tmp_path / "out").read_text())
    running.send_signal(signal.SIGINT)
    assert running.wait(PATIENCE) == 130
    assert (tmp_path / "err").read_text() == ""


def test_watch_survives_an_unreachable_server(live: LiveCluster, api: ApiServer, watch: Watch, tmp_path: Path) -> None:
    watch()
    wait_for(lambda: "notebooks" in (tmp_path / "out").read_text())
    api.down()
    wait_for(lambda: "cannot reach" in (tmp_path / "out").read_text())
    assert "check the server's address" in (tmp_path / "out").read_text()
    live.say("t4-2", "CardMismatch", "GPU 0 is a Tesla V100")
    api.up()
    wait_for(lambda: "Tesla V100" in (tmp_path / "out").read_text())


def test_watch_escapes_server_errors(live: LiveCluster, api: ApiServer, watch: Watch, tmp_path: Path) -> None:
    watch()
    wait_for(lambda: "notebooks" in (tmp_path / "out").read_text())
    api.garble("/nodes", b"\x1b]0;title\x07", status=401)
    wait_for(lambda: "(401)" in (tmp_path / "out").read_text())
    assert "\x1b" not in (tmp_path / "out").read_text()


def test_watch_ends_when_stdout_is_closed(live: LiveCluster, watch: Watch) -> None:
    running = watch(stdout=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(PATIENCE) == 141


def test_watch_does_not_repeat_an_invalid_call(live: LiveCluster, ask: Ask) -> None:
    done = ask("status", "--watch", "--context", "nowhere")
    assert done.returncode == 2
    assert "has no context 'nowhere'" in done.stderr
    assert ask("status", "--watch", "nowhere").returncode == 2
