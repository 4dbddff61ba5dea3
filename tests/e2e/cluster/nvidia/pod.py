"""One of NVIDIA's pods: config-manager as an init container, then beside the program, each started again when it has exited."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_RESTART_SECONDS = 0.5
"""Kubelet waits for longer each time; tests need not."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the programs of a node are, and what config-manager is told. `prefix`: nodes of a machine share its process ids."""

    programs: Path
    folder: Path
    configs: Path
    node: str
    kubeconfig: Path
    prefix: str


class Container:
    """A program, started again when it has exited. `name` is what others see as its argv[0]."""

    def __init__(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str], log: Path) -> None:
        self._name = name
        self._command = [str(part) for part in command]
        self._environment = {**os.environ, **environment}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0

    def keep(self) -> int | None:
        """Start it if it does not run; with which code it has exited just now, if it has."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            self._process = None
            self._not_before = time.monotonic() + _RESTART_SECONDS
        if self._process is None and time.monotonic() >= self._not_before and code != 0:
            self._start()
        return code

    def _start(self) -> None:
        program, *arguments = self._command
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._name, *arguments],
                executable=program,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, seconds: float) -> None:
        """SIGTERM, and SIGKILL after the time."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds)
        self._process.kill()
        self._process.wait()
        self._process = None


class Pod:
    """A program of NVIDIA's with its config-manager, as its DaemonSet has them."""

    def __init__(self, place: Place, program: str, **environment: str) -> None:
        folder = place.folder / program
        folder.mkdir(parents=True, exist_ok=True)
        config, log, name = folder / "config.yaml", place.folder / f"{program}.log", f"{place.prefix}{program}"
        manager = (
            place.programs / "config-manager",
            "--node-name",
            place.node,
            "--kubeconfig",
            place.kubeconfig,
            "--config-file-srcdir",
            place.configs,
            "--config-file-dst",
            config,
            "--fallback-strategies",
            "empty",
        )
        watching = ("--send-signal", "--signal", str(int(signal.SIGHUP)), "--process-to-signal", name)
        self._init = Container("config-manager", (*manager, "--oneshot"), {}, log)
        self._main = Container(name, (place.programs / program,), {"CONFIG_FILE": str(config), **environment}, log)
        self._sidecar = Container("config-manager", (*manager, *watching), {}, log)
        self._is_initialised = False

    def keep(self) -> None:
        """What kubelet does: the init container until it succeeds, then the others for as long as the pod is there."""
        if not self._is_initialised:
            self._is_initialised = self._init.keep() == 0
        if self._is_initialised:
            self._main.keep()
            self._sidecar.keep()

    def end(self, seconds: float) -> None:
        """The pod is deleted."""
        for container in (self._sidecar, self._main, self._init):
            container.end(seconds)
        self._is_initialised = False
