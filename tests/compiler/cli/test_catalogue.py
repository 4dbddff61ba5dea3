"""`gpushare cards`, `explain`, `schema`, `init`, `completion`: what needs no intent."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft7Validator

from gpushare import pipeline
from gpushare.cli import COMPLETE_VARIABLE, catalogue, init
from gpushare.cli.commands import commands
from gpushare.core import resources
from gpushare.core.diagnostics import is_error
from gpushare.facts import mig
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.image_registry import EXAMPLE_IMAGE
from gpushare.intent import types
from gpushare.intent.types import RuntimeImage
from gpushare.offering import modes
from gpushare.offering.modes.mps import has_shares
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(commands, arguments, standalone_mode=False)


def test_the_catalogue_is_a_table_within_the_terminal() -> None:
    lines = run("cards").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-3] if line[0] != " "] == list(cards.ids())
    assert all(len(line) <= 80 for line in lines)


def test_no_name_of_the_catalogue_is_cut() -> None:
    shown = run("cards").stdout
    assert "…" not in shown
    row = shown.index("rtx-pro-6000-server")
    assert shown[row:].split("\nrtx-pro-6000-w")[0].split() == [
        "rtx-pro-6000-server",
        "NVIDIA",
        "RTX",
        "PRO",
        "6000",
        "Blackwell",
        "97887Mi",
        "4",
        "48",
        "Server",
        "Edition",
    ]


@pytest.mark.parametrize("code", resources.finding_codes())
def test_the_text_of_a_code_fits_the_terminal_except_for_its_examples(code: str) -> None:
    lines = run("explain", code).stdout.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("    "))
    assert all(len(line) <= 80 for line in run("explain").stdout.splitlines())


def test_cards_output_marks_unconfirmed_facts() -> None:
    rows = {line.split()[0]: line for line in run("cards").stdout.splitlines() if line}
    assert "?" in rows["p100-pcie-16gb"]
    assert "?" not in rows["t4"]
    assert "ECC                  yes ?" in run("cards", "a30").stdout


def test_cards_document_is_valid_under_its_schema() -> None:
    document = json.loads(run("cards", "--format", "json").stdout)
    assert schema.accepts(schema.load("cards.v1"), document)
    assert set(document["cards"]) == set(cards.ids())
    assert not any("layouts" in card for card in document["cards"].values())


@pytest.mark.parametrize("name", [name for name in cards.ids() if cards.load(name).mig])
def test_card_detail_lists_every_maximal_layout(name: str) -> None:
    geometry = cards.load(name).mig
    assert geometry is not None
    document = json.loads(run("cards", name, "--format", "json").stdout)
    assert schema.accepts(schema.load("cards.v1"), document)
    layouts = [tuple(layout.items()) for layout in document["cards"][name]["layouts"]]
    assert sorted(layouts) == sorted(mig.maximal_layouts(geometry))
    attributes = [any(set("+-") & set(profile) for profile, _ in layout) for layout in layouts]
    assert attributes == sorted(attributes)
    sheet = run("cards", name).stdout
    assert all(len(line) <= 80 for line in sheet.splitlines())
    assert sheet.count("{") == len(layouts)


def test_card_lists_layouts_that_need_a_newer_driver() -> None:
    document = json.loads(run("cards", "a100-sxm4-40gb", "--format", "json").stdout)
    assert document["cards"]["a100-sxm4-40gb"]["mig"]["layoutDrivers"] == [
        {"profiles": ["1g.5gb+me"], "minDriver": "470"},
        {"profiles": ["4g.20gb", "3g.20gb"], "minDriver": "510"},
        {"profiles": ["1g.10gb"], "minDriver": "525"},
    ]
    assert "4g.20gb with 3g.20gb: 510 or newer" in " ".join(run("cards", "a100-sxm4-40gb").stdout.split())
    assert "drivers of layouts" not in run("cards", "h100-sxm5-80gb").stdout


@pytest.mark.parametrize(
    ("command", "name", "nearest"),
    [
        ("cards", "a100", "nearest: a100-pcie-40gb, a100-pcie-80gb, a100-sxm4-40gb or a100-sxm4-80gb"),
        ("explain", "GS4O2", "did you mean"),
        ("schema", "intents", "did you mean intent?"),
    ],
)
def test_unknown_name_is_an_error_with_the_nearest_names(command: str, name: str, nearest: str) -> None:
    done = gpushare(command, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert nearest in done.stderr


def test_explain_lists_every_code_and_explains_each() -> None:
    listed = [line.split()[0] for line in run("explain").stdout.splitlines()[1:]]
    assert tuple(listed) == resources.finding_codes()
    for code in listed:
        shown = run("explain", code.lower()).stdout
        assert shown.startswith(f"{code} ")
        assert "```" not in shown


@pytest.mark.parametrize("name", catalogue.names())
def test_every_schema_is_printed_and_is_draft_07(name: str) -> None:
    document = json.loads(run("schema", name).stdout)
    Draft7Validator.check_schema(document)
    assert document["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_help_of_schema_names_every_schema() -> None:
    listed = re.search(r"(?s)NAME is (.*?)\.\n", run("schema", "--help").stdout)
    assert listed
    assert {*re.findall(r"[a-z-]{4,}", listed[1])} & {*catalogue.names()} == {*catalogue.names()}


def test_the_intents_schema_is_the_default() -> None:
    assert run("schema").stdout == run("schema", "intent").stdout


@pytest.mark.parametrize("mode", types.MODES)
def test_the_starter_intent_compiles_for_every_card_that_can_do_the_mode(mode: str) -> None:
    made = 0
    for name in cards.ids():
        card = cards.load(name)
        if (mode == "mig" and card.mig is None) or (mode == "mps" and not has_shares(card)):
            continue
        if mode == "vgpu" and (card.vgpu is None or not card.vgpu.types):
            continue
        if card.vendor not in modes.named(mode).vendors or (mode == "partition" and not card.partition_modes):
            continue
        text = run("init", "--mode", mode, "--card", name, "--name", "lab-1").stdout
        findings = pipeline.check(text.encode(), "intent.yaml").findings
        assert not [finding for finding in findings if is_error(finding)], (name, findings)
        made += 1
    assert made > {"vgpu": 25, "partition": 6}.get(mode, 30)


@pytest.mark.parametrize("mode", types.MODES)
def test_untouched_starter_has_no_findings_and_names_the_example_of_an_image(mode: str) -> None:
    text = run("init", "--mode", mode).stdout
    assert f"mode: {mode}" in text
    assert yaml.safe_load(text)["spec"]["platform"]["image"] == {"repository": EXAMPLE_IMAGE}
    assert pipeline.check(text.encode(), "intent.yaml").findings == ()


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("own/agent", {"repository": "own/agent"}),
        ("registry.example.net:5000/agent", {"repository": "registry.example.net:5000/agent"}),
        ("registry.example.net:5000/agent:123", {"repository": "registry.example.net:5000/agent", "tag": "123"}),
        (f"reg/agent@sha256:{'0f' * 32}", {"repository": "reg/agent", "digest": f"sha256:{'0f' * 32}"}),
    ],
)
def test_starter_has_the_image_of_the_option(reference: str, image: dict[str, str]) -> None:
    text = run("init", "--image", reference).stdout
    assert yaml.safe_load(text)["spec"]["platform"]["image"] == image
    assert pipeline.check(text.encode(), "intent.yaml").findings == ()


class Terminal(io.StringIO):
    """A person's terminal: what they type, or what they see."""

    def isatty(self) -> bool:
        return True


def test_init_asks_for_the_image_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    monkeypatch.setattr(sys, "stdin", Terminal("Registry/Agent\nregistry.example.net/agent:1\n"))
    assert init._asked_image() == RuntimeImage(repository="registry.example.net/agent", tag="1")
    assert shown.getvalue().startswith("Where will you push the node runtime's image? [registry.example.org/")
    assert "invalid image 'Registry/Agent': REPOSITORY" in shown.getvalue()
    monkeypatch.setattr(sys, "stdin", Terminal("\n"))
    assert init._asked_image() == RuntimeImage(repository=EXAMPLE_IMAGE)
    monkeypatch.setattr(sys, "stdin", io.StringIO("registry.example.net/agent\n"))
    assert init._asked_image() == RuntimeImage(repository=EXAMPLE_IMAGE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "No Name"], "invalid cluster name"),
        (["--card", "a100"], "nearest: a100-pcie-40gb"),
        (["--card", "t4", "--mode", "mig"], "Tesla T4 has no MIG"),
        (["--card", "gtx-1080-ti", "--mode", "mps"], "GTX 1080 Ti has no MPS with shares"),
        (["--image", "https://reg/agent"], "invalid image 'https://reg/agent'"),
        (["--image", "reg/agent:a}, stack: {b"], "invalid image"),
        (["--image", f"reg/agent:1@sha256:{'0f' * 32}"], "REPOSITORY@DIGEST"),
        (["--image", ""], "invalid image ''"),
        (["-o", "nowhere/intent.yaml"], "cannot write nowhere/intent.yaml"),
    ],
)
def test_impossible_starter_intent_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = gpushare("init", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_starter_intent_overwrites_only_with_force(tmp_path: Path) -> None:
    intent = tmp_path / "intent.yaml"
    assert gpushare("init", "-o", intent).returncode == 0
    intent.write_text("mine")
    refused = gpushare("init", "-o", intent)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert intent.read_text() == "mine"
    assert gpushare("init", "-o", intent, "--force").returncode == 0
    assert "kind: ClusterIntent" in intent.read_text()


def test_an_editor_finds_the_schema_that_the_starter_names(tmp_path: Path) -> None:
    (tmp_path / "site a").mkdir()
    intent = tmp_path / "site a" / "intent.yaml"
    assert gpushare("init", "-o", intent, cwd=tmp_path).returncode == 0
    modeline = re.match(r"# yaml-language-server: \$schema=(\S+)\n", intent.read_text())
    assert modeline is not None
    found = json.loads((intent.parent / modeline[1]).read_text())  # editors resolve a relative path against the document
    Draft7Validator.check_schema(found)
    assert Draft7Validator(found).is_valid(yaml.safe_load(intent.read_text()))
    assert not Draft7Validator(found).is_valid({"kind": "ClusterIntent"})
    assert gpushare("check", intent).returncode == 0


def test_schema_of_an_older_release_is_replaced_but_not_a_foreign_file(tmp_path: Path) -> None:
    beside = tmp_path / "intent.v1.json"
    beside.write_text('{"$id": "https://gpushare.dev/schemas/intent.v1.json"}')
    assert gpushare("init", "-o", "intent.yaml", cwd=tmp_path).returncode == 0
    assert json.loads(beside.read_text())["title"]
    beside.write_text("mine")
    refused = gpushare("init", "-o", "second.yaml", cwd=tmp_path)
    assert (refused.returncode, beside.read_text()) == (2, "mine")
    assert "--force" in refused.stderr
    assert not (tmp_path / "second.yaml").exists()
    assert gpushare("init", "-o", "intent.v1.json", "--force", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_names_the_program_and_its_variable(shell: str) -> None:
    done = gpushare("completion", shell)
    assert done.returncode == 0
    assert COMPLETE_VARIABLE in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gpushare", "comp"], {"compile", "completion"}),
        (["gpushare", "cards", "a100-s"], {"a100-sxm4-40gb", "a100-sxm4-80gb"}),
        (["gpushare", "explain", "gs40"], {code for code in resources.finding_codes() if code.startswith("GS40")}),
        (["gpushare", "schema", "o"], {"offer"}),
        (["gpushare", "init", "--card", "l40"], {"l40", "l40s"}),
        (["gpushare", "check", "--format", "s"], {"sarif"}),
    ],
)
def test_shells_complete_commands_cards_codes_and_schemas(words: list[str], expected: set[str]) -> None:
    asked = {COMPLETE_VARIABLE: "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = gpushare(environment=asked)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected


def test_the_bash_script_completes_in_a_real_bash(tmp_path: Path) -> None:
    program = tmp_path / "gpushare"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpushare "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(gpushare completion bash); COMP_WORDS=(gpushare schema fi); COMP_CWORD=2; "
        "_gpushare_completion gpushare; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "findings\n"
