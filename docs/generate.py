"""`make docs`: writes the generated pages, and the tables of facts and reasons."""

import ast
import json
import re
import sys
from pathlib import Path

import click

from gpushare.catalog import cards, facts
from gpushare.cli.commands import NAMES, commands
from gpushare.core import resources
from gpushare.monitoring.alerts import ALERTS
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.reporting.metrics import Registry
from gpushare_node.reporting.reasons import CONDITION, ConditionReason

DOCS = Path(__file__).parent
COMPILER = DOCS.parent / "compiler" / "gpushare"
NODE = DOCS.parent / "node-runtime" / "gpushare_node"
TESTS = DOCS.parent / "tests"
MARKER = "pytest.mark.failure_case"
NOTE = "<!-- Written by `make docs`; edits are lost. -->"


def findings_page() -> str:
    """Return the page with every code, its severity and its title."""
    rows = []
    for path in sorted(resources.findings().glob("GS*.md")):
        title, severity = re.findall(r"^# GS\d{3} (.+)$|^Severity: (\w+)", path.read_text(), re.MULTILINE)[:2]
        rows.append(f"| {path.stem} | {severity[1]} | {title[0]} |")
    head = "`gpushare explain CODE` prints the meaning of a finding, with a bad and a good example. Codes are never reused."
    groups = (
        "GS0 text, GS1 shape, GS2 pools and nodes, GS3 sharing, GS4 MIG, GS5 memory, GS6 quotas, GS7 platform,\n"
        "GS80 accepted warnings, GS85 and GS86 imports, GS9 cards."
    )
    return "\n".join([NOTE, "", "# Findings", "", head, "", groups, "", "| code | severity | |", "|---|---|---|", *rows, ""])


def cards_page() -> str:
    """Return the page with every card, what matters for sharing, and which of its facts are not confirmed."""
    rows = []
    for card in map(cards.load, cards.ids()):
        memory = "unknown" if card.memory_mib is None else f"{card.memory_mib} MiB"
        profiles = ", ".join(profile.name for profile in card.mig.profiles if not profile.has_attributes) if card.mig else "—"
        doubt = ", ".join(card.unconfirmed) or "—"
        rows.append(f"| `{card.id}` | {card.name} | {memory} | {card.mps_max_replicas} | {profiles} | {doubt} |")
    head = (
        "`gpushare cards CARD` draws every legal layout, and says which of them want a newer driver than MIG does; with\n"
        "`--format json` the latter is `mig.layoutDrivers`. Memory is the smallest total that anyone has reported."
    )
    table = ["| id | name | memory | MPS clients | MIG profiles | unconfirmed |", "|---|---|---|---|---|---|"]
    return "\n".join([NOTE, "", "# Cards", "", head, "", *table, *rows, ""])


def reasons_page() -> str:
    """Return the page with every reason of the node condition, what it means and what to do."""
    rows = [
        f"| {reason.word} | {_status(reason)} | {reason.value.means} | {reason.value.remedy} |"
        for reason in ConditionReason
    ]
    head = f"The node condition `{CONDITION}` has one of these reasons; its message names the GPUs, pods or programs concerned."
    hint = (
        "`kubectl describe node NODE` shows it, and `kubectl get events` what led to it. The list is closed. *Failure*:\n"
        "a person must act; the pool's DaemonSet names one such node, and an Application of Argo CD is `Degraded`."
    )
    table = ["| reason | status | it means | what to do |", "|---|---|---|---|"]
    return "\n".join([NOTE, "", f"# Reasons of {CONDITION}", "", head, "", hint, "", *table, *rows, ""])


def _status(reason: ConditionReason) -> str:
    return f"{reason.value.is_ready}, *failure*" if reason.value.is_failure else str(reason.value.is_ready)


def reasons_table() -> str:
    """Return the same as JSON, for `gpushare explain`: the compiler never imports the runtime."""
    reasons = {
        reason.word: {"ready": reason.value.is_ready, "means": reason.value.means, "remedy": reason.value.remedy}
        for reason in ConditionReason
    }
    return json.dumps(reasons, indent=1) + "\n"


def metrics_page() -> str:
    """Return the page with every metric of enforcement, its kind, its labels and its help text."""
    registry = Registry()
    EnforcementMetrics(registry)
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(f'`{label}`' for label in family.labels) or '—'} | {family.text} |"
        for family in registry
    ]
    head = "The container `enforce` of every pod of the runtime serves these metrics on port 9408, at `/metrics`."
    table = ["| metric | type | labels | it is |", "|---|---|---|---|"]
    return "\n".join([NOTE, "", "# Metrics of the node runtime", "", head, "", *table, *rows, ""])


def alerts_page() -> str:
    """Return the page with a runbook for every alert."""
    head = (
        "What each alert of [monitoring](monitoring.md) means, and what to do. With `monitoring.runbooks` in the intent,\n"
        "the annotation `runbook_url` of an alert is the address of its section on your copy of this page."
    )
    lines = [NOTE, "", "# Alerts", "", head, ""]
    for alert in ALERTS:
        held = "at once" if alert.hold == "0m" else f"after {alert.hold}"
        lines += [f"## {alert.name}", "", f"Severity `{alert.severity}`, {held}.", "", alert.means, "", alert.remedy, ""]
        lines += ["```text", alert.expr, "```", ""]
    return "\n".join(lines)


def commands_page() -> str:
    """Return the page with the help of every command, as a terminal of 80 columns shows it."""
    program = click.Context(commands, info_name="gpushare", terminal_width=80, **commands.context_settings)
    lines = ["## gpushare", "", "```text", program.get_help().rstrip(), "```", ""]
    for name in NAMES:
        command = commands.get_command(program, name)
        if command is None:
            raise LookupError(name)
        text = click.Context(command, parent=program, info_name=name).get_help().rstrip()
        lines += [f"## gpushare {name}", "", "```text", text, "```", ""]
    head = "What `--help` prints. `gpushare completion` prints the completion for your shell."
    return "\n".join([NOTE, "", "# Commands", "", head, "", *lines])


def failures_page() -> str:
    """Return the page with what can go wrong on a node. Keeps the cases, and finds the tests that prove them."""
    tests = numbered_tests()
    cases = re.findall(r"^\| (\d+) \| (.+?) \| (.*?) ?\|$", (DOCS / "failure-cases.md").read_text(), re.MULTILINE)
    rows = [f"| {number} | {case} | {'<br>'.join(tests.get(int(number), [])) or why} |" for number, case, why in cases]
    note = "<!-- The last column is written by `make docs`, but where it says why there is no test. -->"
    head = (
        "What goes wrong on nodes with GPUs, and the node runtime's tests against it. A test names its cases in the marker\n"
        "`failure_case`: `pytest -m failure_case` runs them all, `pytest --case 118` those of one case."
    )
    table = ["| number | case | tests |", "|---|---|---|"]
    return "\n".join([note, "", "# Failure cases of the node runtime", "", head, "", *table, *rows, ""])


def numbered_tests() -> dict[int, list[str]]:
    """Return the tests of each case, by file. A test may prove several: `@pytest.mark.failure_case(44, 45)`."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if MARKER not in text:
            continue
        tests = [(test.name, cases_of(test)) for test in ast.parse(text).body if isinstance(test, ast.FunctionDef)]
        for number in sorted({number for _, cases in tests for number in cases}):
            named = [f"`{name}`" for name, cases in tests if number in cases]
            found.setdefault(number, []).append(f"{path.relative_to(TESTS)}: {', '.join(named)}")
    return found


def cases_of(test: ast.FunctionDef) -> set[int]:
    """The numbers in the marker of a test."""
    marks = [mark for mark in test.decorator_list if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARKER]
    return {ast.literal_eval(number) for mark in marks for number in mark.args}


OTHERS = (
    ("node-runtime/Dockerfile", "The stages of the node runtime's image; what is in it is put together by `image/install.py`"),
    ("charts/gpushare/", "The static chart; its [README](../charts/gpushare/README.md) has the folders of its templates"),
    ("templates/", "The jinja2 templates: `intent.yaml.j2` of `init`, the others of the pages of `show`, `plan` and `status`"),
    ("profiles/", "Facts on cards and on NVIDIA's charts, with their sources ([README](../profiles/README.md))"),
    ("docs/pipelines/", "Templates for GitHub, GitLab and Argo CD, which `tests/e2e/pipelines` and `tests/e2e/gitops` run"),
    ("tests/runner/", "What `make test`, `make test-all` and `make test-deps` run: `suites.py` is the list of suites"),
)
"""What is not a Python package, and what it is."""


def ownership_page() -> str:
    """Return the page with every package, its tests' folder (its own or a parent's), and its modules with what they own."""
    root = DOCS.parent
    single = [
        *(path for house in (COMPILER, NODE) for path in sorted(house.glob("*.py")) if path.name != "__init__.py"),
        *sorted((root / "node-runtime/image").glob("*.py")), *sorted((root / ".ci").glob("*.py")), *sorted(DOCS.glob("*.py")),
    ]
    lines = ["## Outside the packages", ""]
    lines += [f"- `{path.relative_to(root)}`: {_first_sentence(path)}" for path in single]
    lines += [*(f"- `{path}`: {what}." for path, what in OTHERS), ""]
    for house, tests in ((COMPILER, TESTS / "compiler"), (NODE, TESTS / "node")):
        for init in sorted(house.glob("*/**/__init__.py")):
            package = init.parent.relative_to(house)
            tested = next(folder for folder in (tests / package, *(tests / package).parents) if folder.is_dir())
            where = f"Tests: `{tested.relative_to(DOCS.parent)}`."
            lines += [f"## {init.parent.relative_to(DOCS.parent)}", "", f"{_first_sentence(init)} {where}"]
            modules = [path for path in sorted(init.parent.glob("*.py")) if path != init]
            lines += ["", *(f"- `{path.name}`: {_first_sentence(path)}" for path in modules), ""] if modules else [""]
    head = "What each package and module owns, by its own docstring. Search this page for the word of your change. Imports: "
    return "\n".join([NOTE, "", "# Who owns what", "", f"{head}[architecture.md](architecture.md).", "", *lines])


def _first_sentence(module: Path) -> str:
    return re.split(r"(?<=\.)\s", ast.get_docstring(ast.parse(module.read_text())) or "")[0]


def facts_table() -> str:
    """Return the cards and the facts about charts as JSON."""
    folders = (resources.cards(NVIDIA.catalogue), resources.upstream())
    return facts.table(sorted(path for folder in folders for path in folder.glob("*.yaml")))


PAGES = {
    "docs/findings.md": findings_page, "docs/cards.md": cards_page, "docs/reasons.md": reasons_page,
    "docs/metrics.md": metrics_page, "docs/alerts.md": alerts_page,
    "docs/commands.md": commands_page, "docs/ownership.md": ownership_page,
    "docs/failure-cases.md": failures_page, "profiles/facts.jsonl": facts_table,
    "compiler/gpushare/live/reasons.json": reasons_table,
}


def main() -> int:
    """Write every generated file."""
    for name, page in PAGES.items():
        (DOCS.parent / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
