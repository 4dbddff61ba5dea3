"""The rules of docs/architecture.md, checked on the imports: layers, cycles, where third-party packages are imported."""

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@dataclass(frozen=True)
class House:
    """A package of Python, and the section of docs/architecture.md with the table of its own packages."""

    name: str
    folder: Path
    section: str

    @cached_property
    def modules(self) -> dict[str, Path]:
        names = {}
        for path in self.folder.rglob("*.py"):
            parts = path.relative_to(self.folder.parent).with_suffix("").parts
            names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return names

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """Of each row the package, and the cell of third-party packages."""
        page = (ROOT / "docs" / "architecture.md").read_text()
        section = page.split(f"\n## {self.section}\n")[1].split("\n## ")[0]
        return re.findall(r"^\| `([\w/]+)` \|.*\|(.*)\|$", section, re.MULTILINE)

    def layer(self, module: str) -> int:
        room = module.removeprefix(self.name).removeprefix(".").replace(".", "/")
        if room in {"", "__main__"}:
            return len(self.rows) if room else -1
        matching = [number for number, (row, _) in enumerate(self.rows) if f"{room}/".startswith(f"{row}/")]
        assert matching, f"{module} has no layer: add its package to the table of docs/architecture.md"
        return matching[0]

    def third_party(self) -> dict[str, set[str]]:
        """Which modules or packages may import each third-party package."""
        found: dict[str, set[str]] = {}
        for row, cell in self.rows:
            for package, module in re.findall(r"`(\w+)`(?: in `([\w.]+)`)?", cell):
                found.setdefault(package, set()).add(".".join(filter(None, [self.name, *row.split("/"), module])))
        return found


COMPILER = House("gpushare", ROOT / "compiler" / "gpushare", "The compiler")
NODE = House("gpushare_node", ROOT / "node-runtime" / "gpushare_node", "The node runtime")

SHARED = ("gpushare_node.contract", "gpushare_node.guard")
"""What the compiler uses of the node runtime."""

HOUSES = pytest.mark.parametrize("house", [COMPILER, NODE], ids=lambda house: house.name)


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Every module that the file imports, anywhere in it: `from a import b` means a.b where that is a module."""
    return {full if module is None or full in known else module for module, full in imported_names(path)}


@cache
def imported_names(path: Path) -> frozenset[tuple[str | None, str]]:
    """Of each name that the file imports its module, None for a module itself, and its full name."""
    found: set[tuple[str | None, str]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(None, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {(str(node.module), f"{node.module}.{alias.name}") for alias in node.names}
    return frozenset(found)


@HOUSES
def test_every_row_of_the_table_is_a_package(house: House) -> None:
    for row, _ in house.rows:
        module = ".".join([house.name, *row.split("/")])
        assert module in house.modules, f"docs/architecture.md has a row for {row}, which does not exist"


@HOUSES
def test_every_module_imports_only_its_own_package_and_those_above_it(house: House) -> None:
    known = house.modules
    for module, path in known.items():
        for target in imports(path, known) & set(known):
            assert house.layer(target) <= house.layer(module), f"{module} imports {target}, which is below it in the table"


@HOUSES
def test_no_module_is_in_an_import_cycle(house: House) -> None:
    known = house.modules
    graph = {module: (imports(path, known) & set(known)) - {module} for module, path in known.items()}
    TopologicalSorter(graph).prepare()


def test_rules_do_not_import_the_plan() -> None:
    """What is wrong is found in the intent alone; that the plan does not know the rules is said by the table."""
    known = COMPILER.modules
    for module, path in known.items():
        if module.startswith("gpushare.rules"):
            assert not any(target.startswith("gpushare.resolved") for target in imports(path, known)), module


def test_only_the_back_ends_know_the_device_plugin() -> None:
    known = COMPILER.modules
    for module, path in known.items():
        if not module.startswith("gpushare.offering.backends"):
            used = [target for target in imports(path, known) if target.startswith("gpushare.offering.backends.device_plugin")]
            assert not used, f"{module}: ask gpushare.offering.backends"


def test_renderers_are_independent_of_each_other() -> None:
    known = COMPILER.modules
    renderers = {
        module
        for module, path in known.items()
        if re.fullmatch(r"gpushare\.render\.\w+", module) and path.name != "__init__.py"
    }
    for module in renderers - {"gpushare.render.bundle_files"}:
        assert not imports(known[module], known) & renderers, module


@HOUSES
def test_third_party_packages_are_imported_only_in_their_modules(house: House) -> None:
    known = house.modules
    allowed = house.third_party()
    for module, path in known.items():
        for target in imports(path, known | NODE.modules):
            top = target.split(".", maxsplit=1)[0]
            if top == house.name or top in sys.stdlib_module_names or target.startswith(SHARED):
                continue
            rooms = allowed.get(top, set())
            assert any(module == room or module.startswith(room + ".") for room in rooms), f"{module} imports {target}"


@pytest.mark.parametrize(
    ("package", "importers"),
    [
        ("gpushare_node.backends.device_plugin", {"gpushare_node.cli.wiring"}),
        ("gpushare_node.backends.dra", {"gpushare_node.cli.wiring"}),
        ("gpushare_node.vendors.nvidia", {"gpushare_node.vendors"}),
        ("gpushare_node.vendors.amd", {"gpushare_node.vendors"}),
    ],
)
def test_a_back_end_and_a_vendor_are_imported_only_where_one_is_chosen(package: str, importers: set[str]) -> None:
    known = NODE.modules
    others = {module: path for module, path in known.items() if not f"{module}.".startswith(f"{package}.")}
    found = {name for name, path in others.items() if any(f"{one}.".startswith(f"{package}.") for one in imports(path, known))}
    assert found == importers


@pytest.mark.parametrize(("package", "shared"), [("adapters", frozenset()), ("vendors", frozenset({"driver"}))])
def test_the_adapters_and_vendors_of_the_node_do_not_know_each_other(package: str, shared: frozenset[str]) -> None:
    known = NODE.modules
    prefix = f"gpushare_node.{package}."
    for module, path in known.items():
        if module.startswith(prefix):
            own = module.removeprefix(prefix).split(".")[0]
            used = {target.removeprefix(prefix).split(".")[0] for target in imports(path, known) if target.startswith(prefix)}
            assert used <= {own, *shared}, f"{module} imports {sorted(used - {own})}"
