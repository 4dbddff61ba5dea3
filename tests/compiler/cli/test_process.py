"""How the process behaves: exit codes, which stream gets what, broken streams, bugs, names it is called by."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare import __version__
from gpushare.cli.commands import COMMANDS
from tests.compiler.cli.process import gpushare, importing
from tests.support import helm
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_examples(name: str) -> None:
    done = importing(name, "--help")
    assert done.returncode == 0
    assert "For example:" in done.stdout
    assert f"gpushare {name}" in done.stdout
    assert "Exit codes" in done.stdout


def test_the_help_names_every_command_that_ends_with_3() -> None:
    told = " ".join(gpushare("--help").stdout.split())
    named = re.findall(r"`(\w+)", told.partition("3 a difference (of ")[2].partition(")")[0])
    assert named == [name for name in COMMANDS if re.search(r"^ +3  ", gpushare(name, "--help").stdout, re.MULTILINE)]


def test_without_arguments_the_help_is_printed() -> None:
    done = gpushare()
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in COMMANDS)


def test_the_version_is_one_line() -> None:
    assert gpushare("--version").stdout == f"gpushare {__version__}\n"


@pytest.mark.parametrize(
    "arguments", ["compil", "check", "check --format xml good.yaml", "compile --check --jobs 2 good.yaml", "--nothing"]
)
def test_invalid_call_exits_2_with_a_usage_line(arguments: str, intents: Path) -> None:
    done = importing(*arguments.split(), cwd=intents)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: gpushare" in done.stderr


def test_a_mistyped_command_gets_the_nearest() -> None:
    assert "did you mean compile?" in gpushare("compil").stderr


def test_an_unreadable_intent_is_one_line_and_a_hint(intents: Path) -> None:
    done = gpushare("check", "nowhere.yaml", cwd=intents)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gpushare: cannot read nowhere.yaml: no such file or directory\n"
        "   = `gpushare init -o nowhere.yaml` writes a starter intent\n"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("no file.yaml", "`gpushare init -o 'no file.yaml'` writes a starter intent"),
        ("nowhere/intent.yaml", "there is no folder nowhere"),
    ],
)
def test_hint_for_a_missing_intent_works(name: str, hint: str, intents: Path) -> None:
    assert gpushare("check", name, cwd=intents).stderr.splitlines()[1:] == [f"   = {hint}"]


def test_a_folder_instead_of_an_intent_is_reported_with_what_is_in_it(intents: Path) -> None:
    done = gpushare("check", intents)
    assert done.returncode == 2
    assert f"{intents}/bad.yaml" in done.stderr


def test_an_unwritable_bundle_exits_2(intents: Path) -> None:
    (intents / "file").write_text("")
    done = gpushare("compile", "-o", "file/bundle", "good.yaml", cwd=intents)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpushare: file/bundle")
    assert "Traceback" not in done.stderr


def test_check_writes_findings_to_stdout_and_compile_to_stderr(intents: Path) -> None:
    check, compiled = gpushare("check", "bad.yaml", cwd=intents), gpushare("compile", "bad.yaml", cwd=intents)
    assert (check.returncode, compiled.returncode) == (1, 1)
    assert "error GS402" in check.stdout
    assert (check.stderr, compiled.stdout) == ("", "")
    assert compiled.stderr == check.stdout
    assert not (intents / "bundle").exists()


@pytest.mark.parametrize("command", ["check", "compile", "show"])
def test_warnings_fail_a_strict_run_only(command: str, intents: Path) -> None:
    assert gpushare(command, "warning.yaml", cwd=intents).returncode == 0
    assert gpushare(command, "--strict", "warning.yaml", cwd=intents).returncode == 1


def test_stdin_is_read_as_an_intent(intents: Path) -> None:
    done = gpushare("check", "-", stdin=(intents / "bad.yaml").read_bytes(), cwd=intents)
    assert done.stdout.startswith("<stdin>:20:37: error GS402")


def test_github_actions_get_workflow_commands(intents: Path) -> None:
    done = gpushare("check", "bad.yaml", cwd=intents, environment={"GITHUB_ACTIONS": "true"})
    assert done.stdout.startswith("::error file=bad.yaml,line=20,col=37,endLine=20,endColumn=60,title=GS402::")


@pytest.mark.parametrize("arguments", [["cards"], ["--help"], ["check", "bad.yaml"], ["compile", "good.yaml"]])
def test_a_full_disk_behind_stdout_is_a_message_and_exit_2(arguments: list[str], intents: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = gpushare(*arguments, cwd=intents, stdout=full)
    assert (done.returncode, done.stderr) == (2, "gpushare: cannot write to standard output: no space left on device\n")


@pytest.mark.parametrize("arguments", [["cards"], ["check", "bad.yaml"], ["show", "good.yaml"]])
def test_a_closed_stdout_is_a_message_and_exit_2(arguments: list[str], intents: Path) -> None:
    done = gpushare(*arguments, cwd=intents, stdout=None, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (2, "gpushare: cannot write to standard output: it is closed\n")


def test_closed_stderr_loses_only_the_findings(intents: Path) -> None:
    done = gpushare("compile", "warning.yaml", cwd=intents, stderr=None, preexec_fn=lambda: os.close(2))
    assert done.returncode == 0
    assert done.stdout.startswith("bundle: ")


@pytest.mark.parametrize("arguments", ["cards", "cards a100-sxm4-40gb", "--help", "schema"])
def test_closed_pipe_ends_the_run_silently(arguments: str) -> None:
    shell = f"set -o pipefail; {sys.executable} -m gpushare {arguments} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", "141"}  # 0 when all was written before the reader left


def test_an_interrupt_ends_the_run_without_a_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "intent.yaml"
    os.mkfifo(pipe)
    command: list[str | Path] = [sys.executable, "-m", "gpushare", "check", pipe]

    def listen() -> None:
        """What a shell starts in the background ignores interrupts, and so would its children."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # Opening the pipe returns when its other end is open: the run now waits for the intent.
    with (
        subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            preexec_fn=listen,  # noqa: PLW1509 - there are no threads here
        ) as running,
        pipe.open("wb"),
    ):
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE)
    assert (running.returncode, errors) == (130, b"")


def test_internal_error_prints_a_traceback_and_exits_with_70(intents: Path) -> None:
    program = (
        "import sys; from gpushare import cli, pipeline; pipeline.check = lambda *_: 1 / 0; "
        "sys.argv = ['gpushare', 'check', 'good.yaml']; sys.exit(cli.main())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=intents, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (70, "")
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "please report it" in done.stderr.splitlines()[-1]


def test_kubectl_finds_the_same_program_under_its_own_name(tmp_path: Path) -> None:
    program = shutil.which("kubectl-gpushare", path=str(Path(sys.executable).parent))
    if program is None:
        script = tmp_path / "kubectl-gpushare"
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom gpushare.cli import main\nsys.exit(main())\n")
        script.chmod(0o755)
        program = str(script)
    done = subprocess.run([program, "check", "--help"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage: kubectl gpushare check ")


def test_a_real_kubectl_runs_it_as_its_plugin(tmp_path: Path, intents: Path) -> None:
    script = tmp_path / "kubectl-gpushare"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom gpushare.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "KUBECONFIG": os.devnull}
    command = [str(helm.kubectl(4)), "gpushare", "check", "bad.yaml"]
    done = subprocess.run(command, cwd=intents, env=environment, capture_output=True, text=True, check=False)
    assert "error GS402" in done.stdout, done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_every_encoding_of_the_terminal_works(encoding: str, intents: Path) -> None:
    done = gpushare("show", "good.yaml", cwd=intents, environment={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert ("│" in done.stdout) == (encoding == "utf-8")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_a_pipe_gets_no_colour(intents: Path) -> None:
    for command in (["check", "bad.yaml"], ["show", "good.yaml"], ["cards", "t4"]):
        assert "\x1b" not in gpushare(*command, cwd=intents).stdout
