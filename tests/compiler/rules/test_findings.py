"""The registry of rules and the texts that explain codes: the two must agree."""

import inspect
import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import gpushare_node
from gpushare import pipeline, rules
from gpushare.core import resources
from gpushare.core.diagnostics import Finding, Severity, is_error
from gpushare.rules.rule import rule
from tests.compiler.rules.intents import check, pool, written

TEXTS = sorted(resources.findings().glob("GS*.md"))
PACKAGE = Path(rules.__file__).parents[1]
TOO_LARGE_FOR_A_PAGE = {"GS002", "GS218", "GS720", "GS721", "GS722", "GS724"}
"""Codes about sizes: `test_sizes`, `test_pools_and_nodes` and the tests of reading make texts that are large enough."""

OF_OTHER_FILES = {
    "GS740",
    "GS790",
    "GS791",
    "GS794",
    "GS795",
    "GS796",
    *(text.stem for text in TEXTS if "GS850" <= text.stem < "GS880"),
}
"""Codes that no intent can have: the lock file's, which the tests of output read, that of the fleet, and those of
imported files."""


def example(text: Path, heading: str) -> tuple[Finding, ...]:
    """What a compile finds in the fenced block below a heading; a `bytes` block holds Python escapes."""
    section = text.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    match = re.search(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    assert match, f"{text.name} has no block below {heading}"
    kind, block = match.groups()
    data = block.strip("\n").encode().decode("unicode_escape").encode("latin-1") if kind == "bytes" else block.encode()
    return pipeline.check(data, "intent.yaml").findings


def test_rules_run_in_the_order_of_their_codes_and_each_has_a_text() -> None:
    assert list(rules.RULES) == sorted(rules.RULES)
    assert rules.RULES.keys() <= {text.stem for text in TEXTS}


def test_every_function_that_checks_an_intent_is_registered() -> None:
    modules = [import_module(f"gpushare.rules.{module.name}") for module in iter_modules(rules.__path__)]
    checks = {
        function
        for module in modules
        for name, function in vars(module).items()
        if name.startswith("check_") and "context" in inspect.signature(function).parameters
    }
    assert checks == set(rules.RULES.values())


def test_code_with_a_rule_refuses_another() -> None:
    with pytest.raises(ValueError, match=r"GS201 has a rule: gpushare\.rules\.pools\.check_card"):
        rule("GS201")(lambda context: iter(()))


def test_order_of_modules_changes_nothing_and_rules_are_found_in_a_zip_archive(tmp_path: Path) -> None:
    archive = tmp_path / "gpushare.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for package in (PACKAGE, Path(gpushare_node.__file__).parent):
            for path in package.rglob("*.py"):
                made.write(path, path.relative_to(package.parent))
    last_first = (
        "import pkgutil; found = pkgutil.iter_modules; pkgutil.iter_modules = lambda path: reversed([*found(path)]);"
        f"import sys; sys.path.insert(0, {str(archive)!r});"
        "from gpushare import rules; assert '.zip' in rules.__file__; print(*rules.RULES)"
    )
    printed = subprocess.run([sys.executable, "-c", last_first], check=True, capture_output=True, text=True).stdout
    assert printed.split() == list(rules.RULES)


def test_every_code_that_the_sources_name_has_a_text_and_every_text_a_source() -> None:
    named = {code for path in PACKAGE.rglob("*.py") for code in re.findall(r'"(GS\d{3})"', path.read_text(encoding="utf-8"))}
    assert named - rules._RETIRED == {text.stem for text in TEXTS}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)
def test_a_text_has_its_title_its_severity_and_all_sections(text: Path) -> None:
    lines = text.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf"# {text.stem} \S.*", lines[0])
    assert lines[2] in {f"Severity: {severity.value}" for severity in Severity}
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == ["## What it means", "## Why it matters", "## Bad", "## Good"]


@pytest.mark.parametrize(
    "text", [text for text in TEXTS if text.stem not in TOO_LARGE_FOR_A_PAGE | OF_OTHER_FILES], ids=lambda text: text.stem
)
def test_bad_example_has_the_code_with_its_severity(text: Path) -> None:
    findings = [finding for finding in example(text, "Bad") if finding.code == text.stem]
    assert findings
    assert f"Severity: {findings[0].severity.value}" in text.read_text(encoding="utf-8")
    assert all(finding.span for finding in findings)


@pytest.mark.parametrize("text", [text for text in TEXTS if text.stem not in OF_OTHER_FILES], ids=lambda text: text.stem)
def test_good_example_has_neither_the_code_nor_an_error(text: Path) -> None:
    assert not [finding for finding in example(text, "Good") if finding.code == text.stem or is_error(finding)]


def test_finding_code_is_shown_at_most_a_hundred_times() -> None:
    names = ", ".join(f"Node_{number}" for number in range(250))
    findings = check(written(pool(nodes=f"{{names: [{names}]}}")))
    assert [finding.code for finding in findings] == ["GS206"] * 101
    assert findings[-1].message == "further findings of GS206 are not shown"


def test_findings_come_in_the_order_of_codes_and_all_at_once() -> None:
    bad = pool("Bad_Name", card="none-such", nodes="{names: [UPPER], expected: 3}")
    codes = [finding.code for finding in check(written(bad, kubernetes='"1.2"'))]
    assert codes == ["GS201", "GS205", "GS206", "GS207", "GS702"]
