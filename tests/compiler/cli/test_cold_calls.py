"""What the calls of every day import, which is most of their time: counted, since no test asserts times."""

import hashlib
import json
import subprocess
import sys

import pytest

from gpushare.bundle import artifact
from tests.support.paths import ROOT

INTENT = ROOT / "examples" / "01-heterogeneous" / "intent.yaml"
NEEDLESS = {
    *("asyncio", "dataclasses", "difflib", "email", "hashlib", "http", "importlib.metadata", "importlib.resources"),
    *("random", "shutil", "ssl", "tempfile", "textwrap", "traceback", "urllib.request", "zipfile", "zoneinfo"),
}
"""Of the standard library: the largest are a twentieth of a cold compile, and nothing on the way needs one."""
THIRD_PARTIES = {"click", "yaml", "_yaml"}
MOST_OF_OURS = 131
"""Most modules of ours that a compile may load, packages included. A new one is worth its file in every compile, or is late."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Command → modules of its process."""
    bundle = str(tmp_path_factory.mktemp("cold") / "bundle")
    # Click looks for `-o` among the long options first, and imports difflib to say which is meant.
    calls = {"check": [], "show": [], "compile": ["--output", bundle]}
    found = {}
    for command, rest in calls.items():
        program = (
            "import sys, json; before = set(sys.modules)\n"
            f"sys.argv = ['gpushare', {command!r}, {str(INTENT)!r}, *{rest}]\n"
            "from gpushare.cli import call\nassert call() == 0\n"
            "print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found[command] = set(json.loads(done.stderr.splitlines()[-1]))
    return found


def test_check_imports_no_more_than_compile(imported: dict[str, set[str]]) -> None:
    assert not imported["check"] - imported["compile"]


def test_a_compile_does_not_import_what_only_comparisons_need(imported: dict[str, set[str]]) -> None:
    assert not [name for name in imported["compile"] if name.startswith("gpushare.compare")]


def test_show_imports_only_drawing_modules_beyond_compile(imported: dict[str, set[str]]) -> None:
    names = ("show", "document", "pool_facts", "model", "text", "terminal")
    drawing = {f"gpushare.report.{name}" for name in names}
    money = {"gpushare.cli.option_files", "gpushare.resolved.costs"}
    others = {"gpushare.report", "gpushare.cli.show", "gpushare.resolved.claim_plan", "unicodedata"}
    others |= {"csv", "_csv", "gpushare.core.palette"}
    assert imported["show"] - imported["compile"] <= drawing | money | others


COMMANDS = pytest.mark.parametrize("command", ["check", "show", "compile"])


@COMMANDS
def test_usual_call_imports_no_unneeded_modules(command: str, imported: dict[str, set[str]]) -> None:
    assert imported[command] & NEEDLESS == set()


@COMMANDS
def test_usual_call_imports_no_third_party_but_the_parsers(command: str, imported: dict[str, set[str]]) -> None:
    tops = {name.partition(".")[0] for name in imported[command]} - sys.stdlib_module_names
    made_by_cython = {name for name in tops if name.startswith(("_cython", "cython_runtime"))}
    assert tops - made_by_cython - THIRD_PARTIES == {"gpushare", "gpushare_node"}


def test_a_compile_imports_no_more_modules_of_ours(imported: dict[str, set[str]]) -> None:
    ours = [name for name in imported["compile"] if name.startswith("gpushare")]
    assert len(ours) <= MOST_OF_OURS, sorted(ours)


def test_digest_equals_hashlibs_sha256() -> None:
    for content in (b"", b"abc", bytes(range(256)) * 1000):
        assert artifact.hexdigest(content) == hashlib.sha256(content).hexdigest()
