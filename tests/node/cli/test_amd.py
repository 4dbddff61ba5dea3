"""The commands on a node with AMD's GPUs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.compiler.render import compiled
from tests.node.cli.cli_environment import PROGRAM, Done, run
from tests.support.fake_amd.sysfs import FakeSysfs

WITHOUT_NVIDIA = "import sys\nsys.modules['pynvml'] = None\n"
POOL = "{card: mi300x, nodes: {matchLabels: {p: x}}, gpusPerNode: 2, sharing: {mode: %s}}"


class Shell:
    """A node without an API server, and a shell on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sysfs = FakeSysfs(folder / "sys", "mi300x", "mi300x")

    def policy(self, mode: str) -> str:
        platform = "{stack: amd-gpu-operator}"
        text = compiled.files("dense", platform=platform, dense=POOL % mode)["chart/files/policies/dense.yaml"]
        (self.folder / "policy.yaml").write_text(text)
        return str(self.folder / "policy.yaml")

    def run(self, *arguments: str) -> Done:
        return run(PROGRAM, arguments, self.environment)

    @property
    def environment(self) -> dict[str, str]:
        return {"GPUSHARE_SYSFS": str(self.sysfs.root), "PATH": "/usr/bin"}

    def with_policy(self, command: str, mode: str, *more: str) -> Done:
        state = ("--standalone", "--state-dir", str(self.folder / "state"))
        return self.run(command, "--policy", self.policy(mode), *state, *more)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_apply_and_assert_compare_the_modes_and_leave_them_alone(shell: Shell) -> None:
    done = shell.with_policy("apply", "exclusive")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok      GPU 0   layout: SPX/NPS1" in done.stdout
    assert shell.with_policy("assert", "exclusive").returncode == 0
    divided = "partition, compute: CPX, memory: NPS4"
    assert shell.with_policy("assert", divided).returncode == 1
    checked = shell.with_policy("apply", divided, "--check", "--diff")
    assert "        - SPX/NPS1\n        + CPX/NPS4\n" in checked.stdout
    refused = shell.with_policy("apply", divided)
    assert (refused.returncode, "ConfigManagerFailed" in refused.stdout) == (1, True), refused.stdout
    assert [gpu.compute for gpu in shell.sysfs.gpus] == ["SPX", "SPX"]


def test_export_has_modes_and_devices(shell: Shell) -> None:
    shell.sysfs.set_memory(1, "NPS4")
    shell.sysfs.start(4711)
    document = yaml.safe_load(shell.run("export").stdout)
    whole, divided = document["gpus"]
    assert (document["driver"]["nvml"], whole["mig"], whole["processes"]) == (None, None, 1)
    assert whole["partition"] == {"compute": "SPX", "memory": "NPS1"}
    assert whole["devices"] == [{"id": "0000:05:00.0", "memoryMiB": 196592}]
    assert (divided["partition"], len(divided["devices"])) == ({"compute": "CPX", "memory": "NPS4"}, 8)


def test_release_leaves_the_modes_alone(shell: Shell) -> None:
    shell.with_policy("apply", "exclusive")
    done = shell.run("release", "--standalone", "--state-dir", str(shell.folder / "state"), "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (0, "Released"), done.stdout
    assert not (shell.folder / "state").exists()


def test_enforce_needs_neither_nvidias_library_nor_its_driver(shell: Shell) -> None:
    argv = [sys.executable, "-c", WITHOUT_NVIDIA + PROGRAM, "enforce", "--policy", shell.policy("exclusive"), "--once"]
    more = ["--standalone", "--state-dir", str(shell.folder / "state")]
    done = subprocess.run([*argv, *more], env=shell.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shell.sysfs.unload()
    assert shell.with_policy("enforce", "exclusive", "--once").returncode == 69
