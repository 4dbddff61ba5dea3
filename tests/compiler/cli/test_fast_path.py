"""The everyday calls mean to `daily` what they mean to click, and go past it."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpushare.cli import compile_commands, fast_path
from gpushare.cli.commands import commands
from gpushare.cli.exits import ExitCode

WORDS = ("--strict", "--check", "-o", "--output", "--format", "text", "json", "sarif", "github", "yaml", "-",
         "--", "there.yaml", "absent.yaml", "folder", "new", "new/below", "there.yaml/below", "", "-x", "--help", "-h", "--out",
         "-onew", "--output=new", "--format=json", "link", "a\0b", "ä.yaml")
USUAL = (["check", "there.yaml"], ["show", "-"], ["compile", "absent.yaml", "-o", "new"], ["compile", "--check", "there.yaml"],
         ["check", "--format", "sarif", "there.yaml"], ["show", "--format", "json", "--strict", "there.yaml"])
ACTIONS = {"check": compile_commands.check, "show": compile_commands.show, "compile_bundle": compile_commands.compile_bundle}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a file, a folder and a link that leads nowhere."""
    monkeypatch.chdir(tmp_path)
    Path("there.yaml").write_text("")
    Path("folder").mkdir()
    Path("link").symlink_to("nowhere")


def by_click(arguments: list[str]) -> tuple[object, dict[str, object]]:
    """What click calls, with what."""
    called: list[tuple[object, dict[str, object]]] = []

    def instead(action: object) -> object:
        def call(**values: object) -> ExitCode:
            called.append((action, values))
            return ExitCode.DONE

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, action in ACTIONS.items():
            patch.setattr(compile_commands, name, instead(action))
        with commands.make_context("gpushare", list(arguments)) as context:
            commands.invoke(context)
    return called[0]


def by_daily(call: Callable[[], ExitCode]) -> tuple[object, dict[str, object]]:
    """The same of what `daily` has understood."""
    assert isinstance(call, partial)
    return call.func, call.keywords


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=st.sampled_from(["check", "show", "compile", "plan"]), rest=st.lists(st.sampled_from(WORDS), max_size=5))
@pytest.mark.usefixtures("place")
def test_whatever_daily_understands_click_understands_so(command: str, rest: list[str]) -> None:
    call = fast_path.understood([command, *rest])
    if call is not None:
        assert by_daily(call) == by_click([command, *rest])


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("command", "least"), [("check", 50), ("show", 50), ("compile", 500)])
def test_every_call_of_three_words_means_the_same_to_both(command: str, least: int) -> None:
    calls = ([command, *rest] for length in range(4) for rest in product(WORDS, repeat=length))
    taken = [(arguments, call) for arguments in calls if (call := fast_path.understood(arguments)) is not None]
    assert [arguments for arguments, call in taken if by_daily(call) != by_click(arguments)] == []
    assert len(taken) > least


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("arguments", USUAL, ids=" ".join)
def test_the_usual_calls_are_understood(arguments: list[str]) -> None:
    call = fast_path.understood(arguments)
    assert call is not None
    assert by_daily(call) == by_click(arguments)


@pytest.mark.parametrize("command", ["check", "show", "compile"])
def test_a_usual_call_imports_no_click(command: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("spec: [")
    program = (f"import sys; sys.argv = ['gpushare', {command!r}, 'bad.yaml']; from gpushare.cli import call; code = call(); "
               "assert 'click' not in sys.modules, 'click'; sys.exit(code)")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "GS003" in done.stdout + done.stderr) == (1, True)
