"""What `apply --check` and `assert` make of devices that kubelet has given to pods: as processes, without an API server."""

import json

import pytest

from tests.node.cli import cli_environment as shell
from tests.node.cli.cli_environment import CliEnvironment, Done

PROGRAM = """import pathlib, sys
from gpushare_node.backends import device_plugin
from gpushare_node.cli import main
device_plugin.read_checkpoint.__defaults__ = (pathlib.Path(sys.argv[1]),)
sys.exit(main(sys.argv[2:]))"""
"""The command, with kubelet's folder elsewhere: the real place is not a test's to write to."""


def run(cli_environment: CliEnvironment, *arguments: str) -> Done:
    place = str(cli_environment.folder / "checkpoint")
    return shell.run(PROGRAM, [place, *arguments, *cli_environment.files], cli_environment.environment)


def give(cli_environment: CliEnvironment, *ids: str) -> None:
    entry = {"PodUID": "u", "ContainerName": "main", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": list(ids)}}
    (cli_environment.folder / "checkpoint").write_text(
        json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}})
    )


@pytest.mark.failure_case(8)
def test_check_skips_an_allocated_gpu_and_reports_what_is_unknown(cli_environment: CliEnvironment) -> None:
    give(cli_environment, cli_environment.fake_nvml.uuid(0))
    done = run(cli_environment, "apply", "--check")
    assert "skipped GPU 0   layout: in use by a pod to which kubelet allocated it" in done.stdout
    assert "create" not in done.stdout
    assert "no API server was used" in done.stdout
    compared = run(cli_environment, "assert")
    assert (compared.returncode, "skipped GPU 0" in compared.stdout) == (1, True)


@pytest.mark.failure_case(8)
def test_allocation_of_an_unchanged_gpu_does_not_matter(cli_environment: CliEnvironment) -> None:
    give(cli_environment, cli_environment.fake_nvml.uuid(1))
    done = run(cli_environment, "apply", "--check")
    assert "changed GPU 0   create 3g.20gb" in done.stdout
    assert "no API server" not in done.stdout


@pytest.mark.failure_case(25)
def test_unreadable_checkpoint_is_reported_with_the_comparison(cli_environment: CliEnvironment) -> None:
    (cli_environment.folder / "checkpoint").write_text("{")
    done = run(cli_environment, "apply", "--check")
    assert "It is unknown which pods hold GPUs, so nothing would be changed: " in done.stdout
    assert run(cli_environment, "assert").returncode == 1


@pytest.mark.failure_case(112)
def test_check_reports_that_nothing_would_change_without_a_checkpoint(cli_environment: CliEnvironment) -> None:
    done = run(cli_environment, "apply", "--check")
    assert "It is unknown which pods hold GPUs, so nothing would be changed: kubelet has no checkpoint" in done.stdout
