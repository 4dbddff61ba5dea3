"""What pages, docstrings and comments name in backquotes exists: paths, modules, `make` targets, functions and classes."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOLDERS = ("charts", "profiles", "templates", "examples", ".github")
CODE = ("compiler", "node-runtime", "tests", "docs", ".ci")
DATA = {".json", ".yaml", ".yml", ".j2", ".sh", ".tpl", ".c", ".h", ".go", ".toml", ".txt", ".lua", ".css", ".js"}
PAGES = [
    path for folder in (".", "docs", "node-runtime", "charts/gpushare", "profiles") for path in (ROOT / folder).glob("*.md")
]
MADE = {"docs/bench-history.jsonl"}
"""What `make` makes: not part of the repository."""
ELSEWHERE = {
    "DisruptionTarget",
    "PID_MAX_LIMIT",
    "_sha2",
    "argoproj.io_Application",
    "exported_namespace",
    "torch.cuda.mem_get_info",
}
FOREIGN = re.compile("NVML_|nvml|stx_")
"""Names of other programs; those of the driver and the kernel have a prefix."""
QUOTED = re.compile(r"``?([^`\n]+)``?")


@cache
def files() -> frozenset[str]:
    """Every file and folder of the repository, from its root."""
    top = [*ROOT.iterdir()]
    folders = [ROOT / name for name in (*CODE, *FOLDERS)]
    found = [path for folder in folders for path in (folder, *folder.rglob("*")) if "__pycache__" not in path.parts]
    return frozenset(str(path.relative_to(ROOT)) for path in [*top, *found])


@cache
def ends() -> frozenset[str]:
    """The paths, and the ends of each: of a/b/c.py also b/c.py and c.py."""
    return frozenset("/".join(parts[count:]) for parts in (name.split("/") for name in files()) for count in range(len(parts)))


@cache
def words() -> frozenset[str]:
    """Every word of the code and the data, without docstrings and comments. This file names what does not exist."""
    found: set[str] = {part for name in files() for part in re.findall(r"\w+", name)}
    for house in (*CODE, "charts", "profiles", "templates", ".github", "examples/01-heterogeneous"):
        for path in (ROOT / house).rglob("*"):
            if path == Path(__file__):
                continue
            if path.suffix == ".py":
                found |= words_of_module(path)
            elif path.suffix in DATA or path.name == "Dockerfile":
                found |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(found | set(re.findall(r"\w+", (ROOT / "Makefile").read_text() + (ROOT / "pyproject.toml").read_text())))


@cache
def module(path: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """The words of a module without its docstrings, and its docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    texts = {node.value for node in nodes if isinstance(node, ast.Expr)}
    docstrings = (node.value for node in texts if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(words_of_nodes(nodes, texts)), tuple(docstrings)


def words_of_nodes(nodes: list[ast.AST], texts: set[ast.expr]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield from re.findall(r"\w+", f"{name} {other}")
            case ast.Constant(value=str(text)) if node not in texts:
                yield from re.findall(r"\w+", text)
            case _:
                pass


def words_of_module(path: Path) -> frozenset[str]:
    return module(path)[0]


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def is_path(path: str) -> bool:
    """Whether some file ends so; `<x>` and `*` stand for any text."""
    parts = [re.escape(part) for part in re.split(r"<\w+>|\*+", path.rstrip("/"))]
    if len(parts) == 1:
        return path.rstrip("/") in ends()
    shape = re.compile(".*".join(parts))
    return any(shape.fullmatch(name) for name in ends())


def is_module(dotted: str) -> bool:
    """Whether this is a module of ours, or a name in one."""
    house = {"gpushare": "compiler/", "gpushare_node": "node-runtime/", "tests": "", "docs": ""}[dotted.partition(".")[0]]
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        base = house + "/".join(parts[:count])
        for file in (f"{base}.py", f"{base}/__init__.py"):
            if file in files():
                return set(parts[count:]) <= words_of_module(ROOT / file)
    return False


TOP = "compiler|node-runtime|tests|docs|charts|profiles|templates|examples"
PATH = re.compile(rf"(?:{TOP}|\.ci|\.github)/[\w./*<>-]+|[\w/<>*-]+\.py")
MODULE = re.compile(r"(?!gpushare\.dev)(?:gpushare|gpushare_node|tests|docs)(?:\.(?!(?:yaml|sarif)$)[A-Za-z_]\w*)+")
NAME = re.compile(r"_?[A-Za-z]\w*(?:\.\w+)*(?:\([^()]*\))?")


def missing(quoted: str) -> Iterator[str]:
    """What the text in backquotes names and the repository has not."""
    for part in quoted.split():
        word = part.rstrip(".,;:")
        unknown_path = PATH.fullmatch(word) and word not in MADE and not is_path(word)
        if unknown_path or (MODULE.fullmatch(word) and not is_module(word)):
            yield word
    called = re.match(r"make ([a-z-]+)", quoted)
    if called and called[1] not in targets():
        yield quoted
    if NAME.fullmatch(quoted) and not PATH.fullmatch(quoted) and not MODULE.fullmatch(quoted):
        name = quoted.partition("(")[0].removeprefix("gpushare_")
        is_ours = "_" in name or re.match(r"_?[A-Z][a-z0-9]+[A-Z]", name) or "(" in quoted
        if is_ours and name not in ELSEWHERE and not FOREIGN.match(name) and not set(re.findall(r"\w+", name)) <= words():
            yield quoted


def told(path: Path) -> str:
    """The docstrings and comments of a module, or a page without its examples of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*module(path)[1], *re.findall(r"(?:^| )# .*", text, re.MULTILINE)])


@pytest.mark.parametrize("house", ["pages", *CODE])
def test_names_in_backquotes_exist(house: str) -> None:
    paths = PAGES if house == "pages" else sorted((ROOT / house).rglob("*.py"))
    found = {
        f"{path.relative_to(ROOT)}: `{name}`"
        for path in paths
        for quoted in QUOTED.findall(told(path))
        for name in missing(quoted)
    }
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize(
    "name",
    [
        "core/nothing.py",
        "tests/nothing/",
        "gpushare.render.nothing",
        "gpushare.core.units.nothing",
        "make nothing",
        "pytest tests/nothing.py",
        "_NO_SUCH_CONSTANT",
        "no_such_function()",
        "NoSuchClass",
    ],
)
def test_nonexistent_name_is_detected(name: str) -> None:
    assert list(missing(name))


@pytest.mark.parametrize(
    "name",
    [
        "core/units.py",
        "profiles/cards/<id>.yaml",
        "gpushare.render.steps",
        "make test-all SUITE=cluster",
        "gpushare_node.contract.policy",
        "compile_intent()",
        "ConditionReason",
        "gpushare.dev/pool",
        "gpushare.lock.yaml",
    ],
)
def test_existing_name_is_accepted(name: str) -> None:
    assert not list(missing(name))
