"""A node without an API server, and a shell on it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.compiler.render import compiled
from tests.support.fake_nvml import FakeNvml
from tests.support.waiting import PATIENCE

Done = subprocess.CompletedProcess[str]
COMMAND = [sys.executable, "-c", """import pathlib, sys
from gpushare_node.cli import main
from gpushare_node.adapters.host import kubelet
kubelet.read_checkpoint.__defaults__ = (pathlib.Path("/nowhere/kubelet_internal_checkpoint"),)
sys.exit(main())"""]
"""The command where no kubelet runs, whatever runs on this machine."""
POOL = (
    "{card: a100-sxm4-40gb, nodes: {matchLabels: {p: x}}, gpusPerNode: 2, sharing: {mode: mig,"
    " layouts: [{gpus: [0], layout: {3g.20gb: 1, 1g.5gb: 4}}, {gpus: [1], layout: none}]}}"
)


def text_of(pool: str = POOL) -> str:
    return compiled.files("dense", dense=pool)["chart/files/policies/dense.yaml"]


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

    def run(self, *arguments: str, text: str | None = None, more: Mapping[str, str] | None = None) -> Done:
        environment = self.environment | dict(more or {})
        return subprocess.run(
            [*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False, input=text, timeout=PATIENCE)

    def with_policy(self, command: str, *more: str) -> Done:
        return self.run(command, "--policy", str(self.policy), "--standalone", "--state-dir", str(self.folder / "state"), *more)
