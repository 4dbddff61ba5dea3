"""What the calls of every day import, which is most of their time: counted, since no test asserts times."""

import hashlib
import json
import subprocess
import sys

import pytest

from gpushare.bundle import artifact
from tests.support.paths import ROOT

INTENT = ROOT / "examples" / "01-heterogeneous" / "intent.yaml"
NEEDLESS = {"dataclasses", "hashlib", "importlib.metadata", "jinja2", "jsonschema", "kubernetes"}
"""Each is a twentieth of a cold compile or more, and nothing on the way needs it."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Command → modules of its process."""
    bundle = str(tmp_path_factory.mktemp("cold") / "bundle")
    calls = {"check": [], "show": [], "compile": ["-o", bundle]}
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
    others |= {"csv", "_csv"}
    assert imported["show"] - imported["compile"] <= drawing | money | others


@pytest.mark.parametrize("command", ["check", "show", "compile"])
def test_usual_call_imports_no_unneeded_modules(command: str, imported: dict[str, set[str]]) -> None:
    assert imported[command] & NEEDLESS == set()


def test_digest_equals_hashlibs_sha256() -> None:
    for content in (b"", b"abc", bytes(range(256)) * 1000):
        assert artifact.hexdigest(content) == hashlib.sha256(content).hexdigest()
