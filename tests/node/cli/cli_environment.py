"""A node without an API server, and a shell on it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compiler.render import compiled
from tests.support.fake_nvml import FakeNvml
from tests.support.forked import Process
from tests.support.waiting import PATIENCE

Done = subprocess.CompletedProcess[str]
PROGRAM = """import pathlib, sys
from gpushare_node.cli import main
from gpushare_node.backends import device_plugin
device_plugin.read_checkpoint.__defaults__ = (pathlib.Path("/nowhere/kubelet_internal_checkpoint"),)
sys.exit(main())"""
"""The command where no kubelet runs, whatever runs on this machine."""
COMMAND = [sys.executable, "-c", PROGRAM]
_FIND_LIBRARY = """import ctypes, os, pynvml
pynvml.CDLL = lambda name: ctypes.CDLL(os.path.join(os.environ.get("LD_LIBRARY_PATH", ""), name))
"""
"""A process reads LD_LIBRARY_PATH when it is started, and a forked one has been started with another."""
_PRELOADED = (
    *(f"gpushare_node.cli.{name}" for name in ("apply", "assert_state", "enforce", "export")),
    "pynvml",
    "gpushare_node.vendors.nvidia.session",
    "kubernetes.client",
    "kubernetes.config",
)
POOL = (
    "{card: a100-sxm4-40gb, nodes: {matchLabels: {p: x}}, gpusPerNode: 2, sharing: {mode: mig,"
    " layouts: [{gpus: [0], layout: {3g.20gb: 1, 1g.5gb: 4}}, {gpus: [1], layout: none}]}}"
)


def text_of(pool: str = POOL) -> str:
    return compiled.files("dense", dense=pool)["chart/files/policies/dense.yaml"]


def start(program: str, arguments: Sequence[str], environment: Mapping[str, str], text: str = "") -> Process:
    """A program with the command in it, in a process of its own."""
    return Process(_FIND_LIBRARY + program, arguments, _PRELOADED, environment=environment, stdin=text.encode())


def run(program: str, arguments: Sequence[str], environment: Mapping[str, str], text: str = "") -> Done:
    """What came of it."""
    process = start(program, arguments, environment, text)
    out, errors = process.communicate(PATIENCE)
    return Done(arguments, process.wait(), out, errors)


class CliEnvironment:
    """A node without an API server, and a shell on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fake_nvml = FakeNvml.make(folder, ("a100-sxm4-40gb",) * 2)
        self.policy = folder / "policy.yaml"
        self.policy.write_text(text_of())

    @property
    def environment(self) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if name not in ("NODE_NAME", "KUBECONFIG", "NO_COLOR")}
        return mine | self.fake_nvml.environment

    def run(self, *arguments: str, text: str = "", more: Mapping[str, str] | None = None) -> Done:
        return run(PROGRAM, arguments, self.environment | dict(more or {}), text)

    @property
    def files(self) -> tuple[str, ...]:
        """The options that name the policy, and the folder of this node, which has no API server."""
        return "--policy", str(self.policy), "--standalone", "--state-dir", str(self.folder / "state")

    def with_policy(self, command: str, *more: str) -> Done:
        return self.run(command, *self.files, *more)
