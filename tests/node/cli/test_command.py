"""The command as people and kubelet start it: a process, its output, its exit code, on fake GPUs."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from gpushare_node import __version__
from gpushare_node.adapters.host.state_dir import StateDir
from tests.node.cli.cli_environment import COMMAND, CliEnvironment, text_of
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.ports import free_port
from tests.support.terminal import on_terminal
from tests.support.waiting import PATIENCE, wait_for


def test_apply_is_idempotent_and_assert_agrees(cli_environment: CliEnvironment) -> None:
    assert cli_environment.with_policy("assert").returncode == 1
    first = cli_environment.with_policy("apply")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "changed GPU 0   create 3g.20gb at" in first.stdout
    cli_environment.fake_nvml.forget_calls()
    second = cli_environment.with_policy("apply")
    assert second.returncode == 0
    assert "changed=0 failed=0" in second.stdout
    assert cli_environment.fake_nvml.calls() == []
    assert cli_environment.with_policy("assert").returncode == 0


def test_check_shows_the_layouts_and_leaves_the_hardware_and_the_folder_alone(cli_environment: CliEnvironment) -> None:
    done = cli_environment.with_policy("apply", "--check", "--diff")
    assert done.returncode == 0
    assert "        - MIG off\n        + MIG on\n" in done.stdout
    assert "        + 3g.20gb at " in done.stdout
    assert cli_environment.fake_nvml.calls() == []
    assert not (cli_environment.folder / "state").exists()


def test_json_output_is_a_single_document(cli_environment: CliEnvironment) -> None:
    document = json.loads(cli_environment.with_policy("apply", "--format", "json").stdout)
    assert document["reason"] == "Ready"
    assert document["recap"]["changed"] == len([one for one in document["results"] if one["status"] == "changed"]) > 0
    refused = json.loads(cli_environment.run("apply", "--policy", "/nowhere", "--standalone", "--format", "json").stdout)
    assert (refused["exit"], refused["error"]) == (2, "/nowhere: cannot be read: No such file or directory")


def test_release_restores_whole_gpus_and_removes_the_state_dir(cli_environment: CliEnvironment) -> None:
    cli_environment.with_policy("apply")
    argv = [*COMMAND, "release", "--standalone", "--state-dir", str(cli_environment.folder / "state")]
    done = subprocess.run(argv, env=cli_environment.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cli_environment.fake_nvml.mode(0) == (False, False)
    assert not (cli_environment.folder / "state").exists()


def test_export_is_yaml_and_json_of_the_same_thing_with_placements_and_devices(cli_environment: CliEnvironment) -> None:
    cli_environment.with_policy("apply")
    as_yaml = yaml.safe_load(cli_environment.run("export").stdout)
    assert as_yaml == json.loads(cli_environment.run("export", "--format", "json").stdout)
    placed = as_yaml["gpus"][0]["mig"]["instances"]
    assert sorted((one["profile"], one["size"]) for one in placed) == [("1g.5gb", 1)] * 4 + [("3g.20gb", 4)]
    assert len({one["start"] for one in placed}) == 5
    assert all(one["devices"][0]["uuid"].startswith("MIG-") for one in placed)
    assert as_yaml["gpus"][1]["mig"] == {"enabled": False, "pending": False, "instances": []}


def test_export_fails_without_a_visible_gpu(tmp_path: Path) -> None:
    nothing = FakeNvml.make(tmp_path, ())
    environment = os.environ | nothing.environment
    command = [sys.executable, "-m", "gpushare_node", "export"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no GPU found" in done.stderr


def test_a_lost_gpu_is_exported_with_its_fault(cli_environment: CliEnvironment) -> None:
    cli_environment.fake_nvml.lose(1)
    gpus = yaml.safe_load(cli_environment.run("export").stdout)["gpus"]
    assert "fault" not in gpus[0]
    assert gpus[1]["fault"]["kind"] == "lost"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", ": .: is not YAML"),
        (b"\xff\xfe", ": is not UTF-8: byte 0"),
        (b"#" * 10_485_760, ": is larger than 1 MiB"),
        (b"", ": .: must be a mapping"),
        (b"apiVersion: v2", ": kind: is missing"),
    ],
    ids=["yaml", "bytes", "size", "empty", "version"],
)
def test_invalid_policy_gives_a_one_line_error_and_changes_nothing(
    cli_environment: CliEnvironment, content: bytes, said: str
) -> None:
    cli_environment.policy.write_bytes(content)
    for command in ("apply", "assert", "enforce"):
        done = cli_environment.with_policy(command)
        assert done.returncode == 2
        assert done.stderr.startswith(f"gpushare-node: {cli_environment.policy}{said}"), done.stderr
        assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert cli_environment.fake_nvml.calls() == []
    assert not (cli_environment.folder / "state").exists()


@pytest.mark.parametrize("name", ["", "/", "/nowhere/at/all", "/proc/self/mem", "a\nb", "\x1b[31m"])
def test_policy_path_that_is_not_a_file_gives_a_one_line_error(cli_environment: CliEnvironment, name: str) -> None:
    done = cli_environment.run("assert", "--policy", name, "--standalone")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr


def test_policy_is_read_from_standard_input(cli_environment: CliEnvironment) -> None:
    assert cli_environment.run("assert", "--policy", "-", "--standalone", text=text_of()).returncode == 1
    assert cli_environment.run("assert", "--policy", "-", "--standalone", text="{").stderr.startswith(
        "gpushare-node: standard input: "
    )


def test_the_path_inside_the_document_is_named(cli_environment: CliEnvironment) -> None:
    cli_environment.policy.write_text(text_of().replace("gpusPerNode: 2", "gpusPerNode: many"))
    assert (
        f"{cli_environment.policy}: spec.gpusPerNode: must be a whole number, not 'many'\n"
        in cli_environment.with_policy("apply").stderr
    )


def test_invalid_policy_is_reported_in_the_node_condition(cli_environment: CliEnvironment, api: ApiServer) -> None:
    api.add_node("node-1")
    cli_environment.policy.write_text("{}")
    more = api.kubeconfig(cli_environment.folder / "kubeconfig") | {"NODE_NAME": "node-1"}
    assert cli_environment.run("enforce", "--policy", str(cli_environment.policy), more=more).returncode == 2
    [condition] = [one for one in api.node("node-1")["status"]["conditions"] if one["type"] == "GPUShareReady"]
    assert (condition["status"], condition["reason"]) == ("False", "PolicyInvalid")
    assert "apiVersion: is missing" in condition["message"]


def test_missing_api_server_error_suggests_standalone(cli_environment: CliEnvironment) -> None:
    done = cli_environment.run("enforce", "--policy", str(cli_environment.policy))
    assert done.returncode == 2
    assert "--standalone" in done.stderr


def test_assert_and_export_fail_without_a_driver(cli_environment: CliEnvironment) -> None:
    cli_environment.fake_nvml.unload()
    done = cli_environment.with_policy("assert")
    assert (done.returncode, "Cannot determine whether the node matches the policy" in done.stdout) == (2, True)
    assert cli_environment.run("export").returncode == 69
    assert cli_environment.with_policy("enforce", "--once").returncode == 69
    assert cli_environment.with_policy("apply", "--check").returncode == 69


@pytest.mark.failure_case(24)
def test_a_second_runtime_ends_with_75(cli_environment: CliEnvironment) -> None:
    cli_environment.fake_nvml.delay("nvmlDeviceSetMigMode", 100)
    argv = [*COMMAND, "apply", *cli_environment.files]
    with subprocess.Popen(argv, env=cli_environment.environment, stdout=subprocess.PIPE) as first:
        wait_for((cli_environment.folder / "state" / "journal.json").exists)
        second = cli_environment.with_policy("apply")
        assert second.returncode == 75
        assert "another gpushare-node is running" in second.stderr
        cli_environment.fake_nvml.heal()
        assert first.wait(PATIENCE) == 0


@pytest.mark.failure_case(21)
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_while_it_waits_for_the_driver_ends_it_and_the_next_run_finishes(
    cli_environment: CliEnvironment, sent: signal.Signals, code: int
) -> None:
    argv = [*COMMAND, "apply", *cli_environment.files]
    cli_environment.fake_nvml.unload()
    with subprocess.Popen(
        argv, env=cli_environment.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as first:
        wait_for((cli_environment.folder / "state" / "lock").exists)
        first.send_signal(sent)
        _, errors = first.communicate(timeout=PATIENCE)
    assert (first.returncode, errors) == (code, f"gpushare-node: stopped by {sent.name}\n")
    cli_environment.fake_nvml.reload()
    assert cli_environment.with_policy("apply").returncode == 0


@pytest.mark.failure_case(21)
def test_driver_wait_ends_after_the_driver_timeout(cli_environment: CliEnvironment) -> None:
    cli_environment.fake_nvml.unload()
    done = cli_environment.with_policy("apply", "--driver-timeout", "0s")
    assert done.returncode == 69
    assert "WaitingForDriver" in done.stdout
    assert cli_environment.run("apply", "--policy", "a", "--driver-timeout", "soon").returncode == 2


def test_enforce_serves_its_pages_and_exits_cleanly_on_sigterm(cli_environment: CliEnvironment) -> None:
    port = free_port()
    argv = [*COMMAND, "enforce", *cli_environment.files, "--port", str(port), "--interval", "100ms"]
    with subprocess.Popen(argv, env=cli_environment.environment, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: _is_ready(f"http://127.0.0.1:{port}/readyz"))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            assert f'gpushare_build_info{{version="{__version__}"' in answer.read().decode()
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    told = [json.loads(line) for line in errors.splitlines()]
    assert told[0]["pool"] == "dense"


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_internal_error_is_one_line_with_a_logged_traceback_and_exit_code_70(cli_environment: CliEnvironment) -> None:
    program = "\n".join(
        (
            "import sys, gpushare_node.cli.export as export",
            "export.bounded_driver = lambda *_: 1 / 0",
            "from gpushare_node.cli import main",
            "sys.exit(main(['export']))",
        )
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    log, last = done.stderr.splitlines()
    assert done.returncode == 70
    assert last == "gpushare-node: internal error: ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in json.loads(log)["traceback"]


def test_closed_stdout_is_not_reported_as_an_error(cli_environment: CliEnvironment) -> None:
    argv = [*COMMAND, "export"]
    with subprocess.Popen(argv, env=cli_environment.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.close()
        assert (done.wait(PATIENCE), done.stderr.read()) == (1, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["apply"],
        ["enforce", "--policy", "a", "--interval", "1"],
        ["enforce", "--policy", "a", "--interval", "0s"],
        ["enforce", "--policy", "a", "--port", "99999"],
        ["apply", "--pol", "a"],
        ["export", "--format", "xml"],
    ],
    ids=" ".join,
)
def test_invalid_command_line_exits_with_2_and_a_usage_line(cli_environment: CliEnvironment, arguments: list[str]) -> None:
    done = cli_environment.run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: gpushare-node")


def test_help_has_every_exit_code(cli_environment: CliEnvironment) -> None:
    for arguments in ([], ["apply"], ["assert"], ["export"], ["enforce"], ["release"]):
        printed = cli_environment.run(*arguments, "--help").stdout
        assert all(f"\n  {code} " in printed for code in (0, 1, 2, 69, 70, 75, 130, 143)), printed


def test_version_loads_neither_driver_nor_http_nor_the_api_s_client() -> None:
    program = "\n".join(
        (
            "import sys",
            "from gpushare_node.cli import main",
            "try: main(['--version'])",
            "finally: print(sorted(sys.modules), file=sys.stderr)",
        )
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == f"gpushare-node {__version__}\n"
    assert not {"'pynvml'", "'kubernetes'", "'urllib3'", "'http.server'"} & set(done.stderr.strip("[]\n").split(", "))


def test_colour_is_used_on_terminals_unless_no_color_is_set(cli_environment: CliEnvironment) -> None:
    arguments = ["assert", "--policy", str(cli_environment.policy), "--standalone"]
    assert "\x1b[33mchanged" in _on_a_terminal([*COMMAND, *arguments], cli_environment.environment)
    assert "\x1b" not in _on_a_terminal([*COMMAND, *arguments], cli_environment.environment | {"NO_COLOR": "1"})
    assert "\x1b" not in cli_environment.run(*arguments).stdout


def _on_a_terminal(argv: list[str], environment: dict[str, str]) -> str:
    return on_terminal(lambda at: subprocess.run(argv, env=environment, stdout=at, stderr=at, check=False))[1]


def test_enforce_keeps_the_labels_that_apply_published(cli_environment: CliEnvironment, api: ApiServer) -> None:
    policy = text_of()
    profile = yaml.safe_load(policy)["spec"]["profile"]
    cli_environment.with_policy("apply")
    StateDir(cli_environment.folder / "state").keep_profile(f"{profile}-b", ["MIG-1"])
    api.add_node("node-1", labels={"p": "x", "gpushare.dev/pool": "dense", "nvidia.com/device-plugin.config": "somebody-else"})
    api.add_pod("runtime", namespace="gpushare", node="node-1", uid="9")
    api.add_daemonset("gpushare-dense")
    more = api.kubeconfig(cli_environment.folder / "kubeconfig") | {
        "NODE_NAME": "node-1",
        "POD_NAME": "runtime",
        "POD_NAMESPACE": "gpushare",
        "POD_UID": "9",
    }
    argv = [
        *COMMAND,
        "enforce",
        "--policy",
        str(cli_environment.policy),
        "--state-dir",
        str(cli_environment.folder / "state"),
        "--port",
        str(free_port()),
    ]
    with subprocess.Popen(argv, env=cli_environment.environment | more, stderr=subprocess.DEVNULL) as running:
        wait_for(lambda: api.node("node-1")["metadata"]["labels"]["nvidia.com/device-plugin.config"] == f"{profile}-b")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0


def test_fields_of_a_newer_compiler_are_ignored_and_reported(cli_environment: CliEnvironment) -> None:
    whole = yaml.safe_load(cli_environment.policy.read_text())
    whole["spec"]["fabric"] = {"partition": 1}
    cli_environment.policy.write_text(yaml.safe_dump(whole))
    done = cli_environment.with_policy("apply")
    assert done.returncode == 0
    assert "skipped node    policy: This runtime ignores the unknown fields spec.fabric" in done.stdout
    assert "ignores the unknown fields spec.fabric" in done.stderr
    assert cli_environment.with_policy("assert").returncode == 0
