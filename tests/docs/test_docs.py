"""The documentation tells the truth: its commands run, its links lead somewhere, its generated pages are current."""

import functools
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.cli.commands import COMMANDS
from gpushare.cli.commands import commands as commands_of_click
from gpushare.facts.catalog import cards
from tests.compiler.cli.process import gpushare
from tests.runner import suites
from tests.support import helm
from tests.support.paths import ROOT
from tests.support.scripts import loaded

EXAMPLES = (page for page in sorted(ROOT.glob("examples/**/README.md")) if "bundle" not in page.parts)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *EXAMPLES,
    *(ROOT / room / "README.md" for room in ("charts/gpushare", "node-runtime", "profiles")),
]

RUN_ELSEWHERE = {
    "pip install .": "tests/long/packaging/test_install.py",
    "gpushare status": "tests/docs/test_modes.py",
    "kubectl apply -f bundle/namespace.yaml": "tests/e2e/cluster/test_tutorial.py",
}
NEEDS_A_CLUSTER = {
    "first-week.md": "tests/e2e/cluster/test_first_week.py",
    "live.md": "tests/docs/test_live.py",
    "tutorial.md": "tests/e2e/cluster/test_tutorial.py",
}
"""Pages whose commands need a cluster, with the test that runs all of them on one."""
OFFLINE = ("gpushare check ", "gpushare show ", "gpushare compile ")
"""Commands with which such a page may begin, and which need none."""


SKIPPED = "…"
"""A line of a page in place of any lines of what a command prints."""


def sessions(page: Path) -> list[tuple[str, str]]:
    """The commands of a page, each with what the page shows of its output: often nothing."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [(part.partition("\n")[0], part.partition("\n")[2]) for block in blocks for part in f"\n{block}".split("\n$ ")[1:]]


def manifests(page: Path) -> dict[str, str]:
    """The YAML files that a page shows with their names, by name."""
    return dict(re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


def commands(page: Path) -> list[str]:
    return [command for command, _ in sessions(page)]


def without_cluster(page: Path) -> list[tuple[str, str]]:
    """The commands that need no cluster: of a page that needs one those with which it begins."""
    if page.name not in NEEDS_A_CLUSTER:
        return sessions(page)
    return list(itertools.takewhile(lambda session: session[0].startswith(OFFLINE), sessions(page)))


def is_shown(shown: str, printed: str) -> bool:
    """Whether the lines of a page are what was printed, but for the lines that the page leaves out."""
    parts = [re.escape(part) for part in f"\n{shown.rstrip()}\n".split(f"\n{SKIPPED}\n")]
    return re.fullmatch(r"(?:\n.*)*\n".join(parts), f"\n{printed.rstrip()}\n") is not None


@pytest.mark.parametrize("page", [page for page in PAGES if without_cluster(page)], ids=lambda page: page.name)
def test_the_commands_of_a_page_run_in_their_order(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "helm").symlink_to(helm.helm(4))
    path = f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "KUBECONFIG": os.devnull}
    environment = {**os.environ, **own, "PYTHONUTF8": "1"}
    environment.pop("COLUMNS", None)  # the pages show tables whole, as a file gets them
    for name, text in manifests(page).items():
        (tmp_path / name).write_text(text)
    for command, shown in without_cluster(page):
        if command in RUN_ELSEWHERE:
            assert (ROOT / RUN_ELSEWHERE[command]).is_file()
            continue
        # No cluster here: Helm goes through the whole installation without sending it, which `upgrade` cannot.
        line = re.sub(r"^helm upgrade --install (.*)", r"helm install \1 --dry-run=client", command)
        if re.fullmatch(r"gpushare [^$|&;<>()*?`\\]*", line):  # a call that the shell passes on as it stands
            done = gpushare(*shlex.split(line, comments=True)[1:], cwd=tmp_path, environment=own)
        else:
            done = subprocess.run(
                ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False
            )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert not shown or is_shown(shown, done.stdout), f"{command}\n{done.stdout}"


def test_page_may_omit_output_lines_but_not_change_them() -> None:
    assert is_shown("a\nb\n", "a\nb\n")
    assert is_shown("a\n…\nc\n", "a\nb\nb\nc\n")
    assert is_shown("…\nc\n…\n", "a\nb\nc\nd\n")
    assert not is_shown("a\n", "a\nb\n")
    assert not is_shown("a\n…\n", "b\na\n")
    assert not is_shown("a\n…\nc\n", "a\nbc\n")


def test_a_page_that_needs_a_cluster_has_its_test() -> None:
    for page, test in NEEDS_A_CLUSTER.items():
        assert commands(ROOT / "docs" / page)
        assert page in (ROOT / test).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_variable_and_suite_that_a_page_names_exists(page: Path) -> None:
    makefile, text = (ROOT / "Makefile").read_text(), page.read_text()
    calls = re.findall(r"(?:`|^)make ([a-z][^`\n]*)", text, re.MULTILINE)
    assert {word for call in calls for word in re.findall(r"(?:^| )([a-z][a-z-]*)(?= |$)", call.partition("#")[0])} <= set(
        re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    )
    variables = {name for call in calls for name in re.findall(r"\b([A-Z]+)=", call)}
    assert variables <= set(re.findall(r"\b[A-Z]+\b", makefile))
    named_suites = {name for named in re.findall(r"\b(?:SUITE|SKIP)=([\w,-]+)", text) for name in named.split(",")}
    assert named_suites <= set(suites.NAMES)


def test_readme_states_the_number_of_cards() -> None:
    (tens,) = re.findall(r"catalogue of over (\w+) cards", (ROOT / "README.md").read_text())
    least = 10 * ("ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety").index(tens) + 10
    assert least < len(cards.ids()) <= least + 10


@functools.cache
def help_of_runtime(command: str) -> str:
    """What the node runtime prints of a command's options."""
    return subprocess.run(
        [sys.executable, "-m", "gpushare_node", command, "--help"], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_of_the_runtime_that_a_page_names_exists(page: Path) -> None:
    for command, rest in re.findall(r"gpushare-node (apply|assert|export|enforce|release)\b([^`\n]*)", page.read_text()):
        told = help_of_runtime(command)
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]+", rest):
            assert re.search(rf"{option}\b(?!-)", told), f"gpushare-node {command} {option}"


FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


def inline_commands(text: str) -> list[str]:
    """The calls of our programs that a page names in a sentence or a table, up to what a shell does with their output."""
    named = re.findall(r"`((?:kubectl )?gpushare(?:-node)? [^`]+)`", FENCE.sub("", text))
    return sorted({re.split(r" (?:[|>]|&&) ", " ".join(one.split()))[0].replace("\\|", "|") for one in named})


def refuse(words: list[str]) -> str:
    """Why gpushare would not take these words, empty if it would. Words in capitals, `<x>` and `…` stand for any."""
    words = [word.strip("[]").rstrip("…") for word in words if word != "…"]
    if not words:
        return ""
    if words[0] not in COMMANDS:
        return "" if words[0].isupper() else f"there is no command {words[0]}"
    program = click.Context(commands_of_click, **commands_of_click.context_settings)
    command = commands_of_click.get_command(program, words[0])
    assert command is not None
    context = click.Context(command, parent=program)
    try:
        given, rest, _ = command.make_parser(context).parse_args(words[1:])
    except click.ClickException as problem:
        return "" if "requires an argument" in problem.format_message() else problem.format_message()
    if rest:
        return f"{rest} is too much"
    for one in command.params:
        value = given.get(one.name)
        if isinstance(one.type, click.Choice) and isinstance(value, str) and not re.fullmatch(r"<.*>|[A-Z|]+", value):
            unknown = set(value.split("|")) - set(one.type.choices)
            if unknown:
                return f"{one.name}: {unknown}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_inline_command_is_accepted_by_the_program(page: Path) -> None:
    for command in inline_commands(page.read_text(encoding="utf-8")):
        words = shlex.split(command.removeprefix("kubectl "))
        assert words[0] == "gpushare-node" or not refuse(words[1:]), f"{command}: {refuse(words[1:])}"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("shwo", "no command"),
        ("show --pol x a.yaml", "No such option"),
        ("show --format pdf a.yaml", "pdf"),
        ("check a.yaml b.yaml", "too much"),
    ],
)
def test_nonexistent_command_is_detected(command: str, said: str) -> None:
    (found,) = inline_commands(f"Run `gpushare {command} | less`.\n```console\n$ gpushare nothing\n```\n")
    assert said in refuse(shlex.split(found)[1:])


def test_generated_pages_are_current() -> None:
    for name, page in loaded("docs/generate.py").PAGES.items():
        assert (ROOT / name).read_text(encoding="utf-8") == page(), f"{name} is stale: run `make docs`"


def test_every_recipe_is_in_the_list_and_has_at_most_five_steps() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    head, *sections = page.split("\n## ")
    links = set(re.findall(r"\]\(#([\w-]+)\)", head))
    steps = {
        title: len(re.findall(r"^\d+\. ", rest, re.MULTILINE)) for title, _, rest in (one.partition("\n") for one in sections)
    }
    assert {title: count for title, count in steps.items() if count > 5} == {}
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in steps}
    assert links == anchors - {"how-to-propose-a-change", "set-up-and-run-the-tests"}


def test_every_code_on_a_page_exists() -> None:
    have = {path.stem for path in (ROOT / "compiler/gpushare/findings").glob("GS*.md")}
    for page in PAGES:
        assert set(re.findall(r"\bGS\d{3}\b", page.read_text())) <= have, page.name


def test_the_intents_in_the_documentation_compile() -> None:
    for page in PAGES:
        for block in re.findall(r"```yaml\n(apiVersion: gpushare.dev/v1\n.*?)```", page.read_text(), re.DOTALL):
            compilation = pipeline.compile_intent(block.encode(), page.name, lock.EMPTY)
            assert compilation.plan is not None, [finding.message for finding in compilation.findings]


def test_the_finding_in_the_readme_is_what_check_prints(tmp_path: Path) -> None:
    shown = re.search(r"```\n(intent\.yaml:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    head = "\n".join(
        [
            "apiVersion: gpushare.dev/v1",
            "kind: ClusterIntent",
            "metadata: {name: physics}",
            "spec:",
            "  pools:",
            "    training:",
            "      card: a100-sxm4-40gb",
            "      nodes: {names: [gpu-a100-01]}",
            "      gpusPerNode: 4",
            "      sharing:",
            "        mode: mig",
            "        layout: {3g.20gb: 2, 1g.5gb: 1}",
            "",
        ]
    )
    (tmp_path / "intent.yaml").write_text("\n" * 10 + head)
    command = [sys.executable, "-m", "gpushare", "check", "intent.yaml", "--format", "text"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown[1].rstrip() in done.stdout, done.stdout
