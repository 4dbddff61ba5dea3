"""docs/surfaces.md is complete, and the tests that it names exist and mention what they are said to prove."""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gpushare.cli.commands import NAMES, commands
from gpushare.cli.exits import ExitCode
from gpushare_node.adapters.kube import cluster
from gpushare_node.cli import options
from gpushare_node.cli.exits import MEANINGS
from gpushare_node.reporting.events import EventReason
from gpushare_node.reporting.reasons import CONDITION
from tests.chart.bundles import BUNDLES
from tests.chart.reading import documents
from tests.docs.test_reference import LISTED
from tests.support import helm
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/surfaces.md").read_text(encoding="utf-8")
WATCHED = ROOT / "examples/17-monitoring/intent.yaml"
PROGRAMS = {"gpushare", "gpushare-node"}

Row = list[str]


def rows(title: str) -> list[Row]:
    """The rows of the table below this heading, without the heads of its columns."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, title
    lines = [line for line in section[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def proof(row: Row) -> str:
    """The text of all tests of the row."""
    return "\n".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in code(row[-1]))


def first(title: str) -> list[str]:
    """What the rows of a table are about, each once."""
    found = [name for row in rows(title) for name in code(row[0])]
    assert len(found) == len(set(found)), found
    return found


def node_commands() -> dict[str, argparse.ArgumentParser]:
    parser = options._parser()
    return next(dict(each.choices) for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def formats() -> dict[str, list[str]]:
    """What `--format` of every command of both programs takes."""
    program = click.Context(commands, info_name="gpushare")
    found: dict[str, list[str]] = {}
    for name in NAMES:
        command = commands.get_command(program, name)
        assert command is not None
        types = [option.type for option in command.params if "--format" in option.opts]
        found[f"gpushare {name}"] = [str(choice) for kind in types if isinstance(kind, click.Choice) for choice in kind.choices]
    for name, parser in node_commands().items():
        given = [action.choices for action in parser._actions if "--format" in action.option_strings]
        found[f"gpushare-node {name}"] = [str(choice) for choices in given for choice in choices or ()]
    return found


def sections() -> list[str]:
    return [title for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE) if title != "What no test proves"]


@pytest.mark.parametrize("title", sections())
def test_every_named_test_exists_and_every_row_has_one(title: str) -> None:
    assert rows(title)
    for row in rows(title):
        assert code(row[-1]), row
        for name in code(row[-1]):
            assert (ROOT / "tests" / name).is_file(), name
            assert Path(name).name.startswith("test_"), name


def test_every_command_has_a_row_with_its_formats_and_tests_that_run_it() -> None:
    table = {code(row[0])[0]: row for row in rows("Commands")}
    assert {name: code(row[1]) for name, row in table.items()} == formats()
    for name, row in table.items():
        text = proof(row)
        assert f'"{name.split()[1]}"' in text, name
        # The first is the default.
        for choice in code(row[1])[1:]:
            assert re.search(rf"\b{choice}\b", text), f"{name} --format {choice}"


def test_every_exit_code_has_a_row_and_a_test_that_expects_it() -> None:
    ours = {int(code_) for code_ in ExitCode}
    node = {int(number) for number in re.findall(r"^ +(\d+) ", MEANINGS, re.MULTILINE)}
    named: dict[str, set[int]] = {"gpushare": set(), "gpushare-node": set()}
    for row in rows("Exit codes"):
        number = int(code(row[0])[0])
        programs = PROGRAMS if row[1] == "both programs" else set(code(row[1]))
        for program in programs:
            named[program].add(number)
            folder = {"gpushare": "compiler/", "gpushare-node": "node/"}[program]
            of = [name for name in code(row[-1]) if name.startswith(folder)]
            assert any(re.search(rf"\b{number}\b", (ROOT / "tests" / name).read_text()) for name in of), (program, number)
    assert named == {"gpushare": ours, "gpushare-node": node}


def test_every_file_of_a_bundle_has_a_row_and_tests_that_name_it() -> None:
    assert first("Files of a bundle") == [name for name in LISTED if not name.endswith("/")]
    for row in rows("Files of a bundle"):
        path = code(row[0])[0]
        folder, _, name = path.rpartition("/")
        wanted = Path(folder).name if "<" in name else name
        assert wanted in proof(row), path


def kinds(text: str, pools: list[str]) -> Iterator[tuple[str, str]]:
    """The objects by name and kind; names of pools and digests are placeholders."""
    for item in documents(text):
        name = item["metadata"]["name"]
        for pool in sorted(pools, key=len, reverse=True):
            name = re.sub(rf"\Agpushare-(test-)?{re.escape(pool)}(?=\Z|-policy-)", r"gpushare-\1<pool>", name)
        yield re.sub(r"-policy-[0-9a-f]+\Z", "-policy-<digest>", name), item["kind"]


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """A chart as Helm renders it, far from the user's own settings."""
    environment = {"HOME": str(tmp_path_factory.mktemp("helm-home")), "KUBECONFIG": "/dev/null"}

    def run(chart: Path) -> str:
        command: list[Any] = [helm.helm(4), "template", "gpushare", chart, "--namespace", "gpu-system"]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    return run
def test_every_object_of_the_chart_has_a_row_and_tests_that_name_it(
    render: Callable[[Path], str], tmp_path: Path
) -> None:
    found: dict[str, set[str]] = {}
    rendered = [(render(bundle.write(tmp_path / bundle.name)), list(bundle.values["pools"]))
                for bundle in BUNDLES if bundle.name in {"modes", "mig-manager", "device-plugin"}]
    for intent in ("adoption: observe", ""):
        text = WATCHED.read_text().replace("spec:\n", f"spec:\n  {intent}\n", 1)
        (tmp_path / "intent.yaml").write_text(text)
        folder = tmp_path / (f"compiled-{len(rendered)}")
        command = [sys.executable, "-m", "gpushare", "compile", str(tmp_path / "intent.yaml"), "-o", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        rendered.append((render(folder / "chart"), [path.stem for path in (folder / "chart/files/policies").glob("*.yaml")]))
    for text, pools in rendered:
        for name, kind in kinds(text, pools):
            found.setdefault(name, set()).add(kind)
    table = {code(row[0])[0]: row for row in rows("Objects of the chart")}
    assert {name: set(code(row[1])) for name, row in table.items()} == found
    for name, row in table.items():
        fixed = re.sub(r"<\w+>", "", name).removeprefix("gpushare-").strip("-")
        text = proof(row)
        assert (fixed and fixed in text) or any(kind in text for kind in code(row[1])), name


def test_every_mark_of_a_node_has_a_row_and_tests_that_name_it() -> None:
    own = {getattr(cluster, name) for name in dir(cluster) if name.endswith(("_LABEL", "_ANNOTATION"))}
    own = {name for name in own if name.startswith("gpushare.dev/")}
    assert set(first("On a node")) == own | {*cluster.NOT_READY_TAINTS, *cluster.REPARTITIONING_TAINTS, CONDITION}
    for row in rows("On a node"):
        name = code(row[0])[0]
        # Tests have the autoscaler's keys as the first part of their prefix.
        word = "ConditionReason" if name == CONDITION else name if name.startswith("gpushare") else name.partition(".")[0]
        assert word in proof(row) or name in proof(row), name


def test_every_event_has_a_row_and_tests_that_expect_it() -> None:
    assert first("Events") == [reason.value for reason in EventReason]
    for row in rows("Events"):
        assert code(row[0])[0] in proof(row), row[0]
