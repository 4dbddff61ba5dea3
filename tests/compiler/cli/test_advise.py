"""`gpushare advise`: its output, the patch of the intent, and calls that cannot be run."""

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpushare.cli.commands import commands
from gpushare.core.diagnostics import HintedError
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.compiler.report.page import Page
from tests.support.usage_series import Shape, csv_text, history

INTENT = """\
# the lab
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab}
spec:
  platform:
    image: {repository: registry.example.org/gpushare/node-runtime}
  prices: {t4: 0.35 EUR/h}
  pools:
    notebooks:      # for everybody
      card: t4
      nodes: {matchLabels: {node.example.org/gpu: t4}, expected: 12}
      gpusPerNode: 1
      sharing:
        mode: time-slicing
        replicas: 3   # since spring
"""
USE = csv_text(history([("atlas", 12, Shape(base_mib=1500, burst_mib=500))], days=1, step_seconds=600))


@pytest.fixture
def intent(tmp_path: Path) -> Path:
    path = tmp_path / "intent.yaml"
    path.write_text(INTENT)
    (tmp_path / "use.csv").write_text(USE)
    return path


def called(intent: Path, *arguments: object, usage: object = "", stdin: str = "") -> Result:
    call = ["advise", str(intent), "--usage", str(usage or intent.parent / "use.csv"), *map(str, arguments)]
    return CliRunner().invoke(commands, call, standalone_mode=False, input=stdin)


def refused(intent: Path, *arguments: object, usage: object = "") -> HintedError | click.UsageError:
    """Why a call cannot be run; it prints nothing and leaves the intent as it is."""
    before = intent.read_bytes()
    done = called(intent, *arguments, usage=usage)
    assert isinstance(done.exception, click.UsageError | HintedError), done.output
    assert done.stdout == ""
    assert intent.read_bytes() == before
    return done.exception


def test_a_process_prints_the_advice_and_its_diff(intent: Path) -> None:
    done = gpushare("advise", intent, "--usage", intent.parent / "use.csv", environment={"COLUMNS": "120"})
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "notebooks  time-slicing ×6 in place of time-slicing ×3",
        "shares: 6 per node in place of 3, each under a cap of 2.425 GiB",
        "GPUs for the peak of the learned part: 2 in place of 4; memory saved: 30 GiB; money saved: 0.70 EUR/h",
        "back-test: of 12 containers none ended; endings for each container and week: 0 (0 to 6.5)",
        "-        replicas: 3   # since spring",
        "+        replicas: 6   # since spring",
    ):
        assert line in done.stdout
    assert intent.read_text() == INTENT


def test_write_patches_the_file_that_a_link_names_and_the_result_compiles(intent: Path) -> None:
    intent.chmod(0o640)
    link = intent.parent / "link.yaml"
    link.symlink_to(intent.name)
    assert called(link, "--write").exception is None
    assert link.is_symlink()
    assert intent.read_text() == INTENT.replace("replicas: 3", "replicas: 6")
    assert intent.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in intent.parent.iterdir()} == {"intent.yaml", "link.yaml", "use.csv"}
    assert gpushare("check", intent).returncode == 0
    again = called(intent, "--write", "--format", "json")
    assert json.loads(again.stdout)["diff"] == ""
    assert not json.loads(again.stdout)["written"]


def test_the_document_follows_its_schema(intent: Path) -> None:
    done = called(intent, "--format", "json", "--risk", "2%", "--pool", "notebooks", stdin=USE, usage="-")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("advice.v1"), document)
    found = document["pools"]["notebooks"]
    assert found["change"]["fields"] == {"sharing": {"mode": "time-slicing", "replicas": 6}}
    assert found["change"]["sharesPerNode"] == {"before": 3, "after": 6}
    assert found["change"]["savedPerHour"] == 0.7
    assert found["change"]["backTest"]["endingsPerContainerWeek"]["high"] > 0
    assert found["namespaces"]["atlas"]["containers"] == 12
    assert "+        replicas: 6   # since spring" in document["diff"]
    assert document["currency"] == "EUR"
    few = json.loads(called(intent, "--format", "json", "--min-containers", "13").stdout)
    assert schema.accepts(schema.load("advice.v1"), few)
    assert few["pools"]["notebooks"]["refusal"]["reason"] == "few"


def test_the_page_has_the_verdict_the_curve_and_the_diff(intent: Path) -> None:
    done = called(intent, "--html")
    assert done.exit_code == 0, done.output
    seen = Page(done.stdout)
    assert "1 of 1 pool should change" in seen.text
    assert json.loads(called(intent, "--format", "json").stdout)["diff"].rstrip() in seen.text
    assert "svg" in seen.tags
    assert done.stdout.partition("As of")[0] == called(intent, "--format", "html").stdout.partition("As of")[0]


def test_a_refusal_is_a_result(intent: Path) -> None:
    done = called(intent, "--window", "6h")
    assert done.exception is None
    assert "notebooks  no advice: the history is too short" in done.stdout
    assert "---" not in done.stdout


def test_what_cannot_be_patched_is_said_with_what_to_write(intent: Path) -> None:
    overlay = intent.parent / "north.yaml"
    overlay.write_text("spec: {pools: {notebooks: {sharing: {replicas: 4}}}}")
    done = called(intent, "--overlay", overlay)
    assert done.exception is None
    assert "notebooks  time-slicing ×6 in place of time-slicing ×4" in done.stdout
    assert "north.yaml decides what changes\n   = write in spec.pools notebooks: {sharing: {mode:" in done.stderr
    problem = refused(intent, "--overlay", overlay, "--write")
    assert "cannot be patched" in str(problem)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("--pool", "note"), "the intent has no pool for containers 'note'"),
        (("--window", "soon"), "is not a time such as 14d or 36h"),
        (("--window", "400d"), "of at most 366d"),
        (("--risk", "-1"), "is not a percentage"),
        (("--min-containers", "0"), "is not a number from 1"),
        (("--prices", "none.yaml"), "cannot read none.yaml"),
        (("--overlay", "-", "--write"), "--write needs the name of a file"),
        (("--overlay", "-", "--usage", "-"), "standard input can be only one of"),
    ],
)
def test_a_call_that_is_wrong(intent: Path, call: tuple[str, ...], message: str) -> None:
    assert message in str(refused(intent, *call))


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        ("none.csv", "cannot read none.csv"),
        ("prometheus:9090", "cannot read prometheus:9090"),
        ("http://127.0.0.1:9", "cannot reach http://127.0.0.1:9"),
    ],
)
def test_use_that_cannot_be_read(intent: Path, usage: str, message: str) -> None:
    assert message in str(refused(intent, usage=usage))
    (intent.parent / "empty.csv").write_text("time,namespace,pod,container,pool,device,used,cap\n")
    assert "can be used" in str(refused(intent, usage=intent.parent / "empty.csv"))


def test_an_intent_with_errors_is_not_advised(intent: Path) -> None:
    intent.write_text(INTENT.replace("card: t4", "card: t5"))
    done = gpushare("advise", intent, "--usage", intent.parent / "use.csv")
    assert (done.returncode, done.stdout) == (1, "")
    assert "t5" in done.stderr


def test_an_intent_that_changes_meanwhile_is_not_overwritten(intent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(_: int) -> None:
        intent.write_text(INTENT + "# edited\n")

    monkeypatch.setattr(os, "fsync", change)
    done = called(intent, "--write")
    assert "was changed meanwhile" in str(done.exception)
    assert intent.read_text().endswith("# edited\n")
    assert {path.name for path in intent.parent.iterdir()} == {"intent.yaml", "use.csv"}
