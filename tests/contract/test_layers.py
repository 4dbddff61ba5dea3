"""The house rules of architecture.md, checked on the imports themselves: layers, cycles, places of third-party packages."""

import ast
import sys
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class House:
    """A package: its layers from left to right, each a name and its rooms, and where third-party packages may be imported."""

    name: str
    folder: Path
    layers: tuple[tuple[str, set[str]], ...]
    third_party: dict[str, set[str]]

    def modules(self) -> dict[str, Path]:
        names = {}
        for path in self.folder.rglob("*.py"):
            parts = path.relative_to(self.folder.parent).with_suffix("").parts
            names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return names

    def layer(self, module: str) -> int:
        room = [*module.split("."), "__init__"][1]
        matching = [number for number, (_, rooms) in enumerate(self.layers) if room in rooms]
        assert matching, f"{module} has no layer: add it here, and to docs/architecture.md"
        return matching[0]


COMPILER = House(
    name="gpushare",
    folder=ROOT / "compiler" / "gpushare",
    layers=(
        ("words", {"__init__", "diagnostics", "units", "artifact", "emit", "record", "resources", "finding_texts", "patterns"}),
        ("reading", {"scalars", "tree", "source", "shape", "schema", "schemas", "facts"}),
        (
            "model",
            {"intent", "intent_reader", "catalog", "card_check", "upstream", "owned_values", "mig", "caps", "shares"}
            | {"labels", "selectors", "lock", "registry", "canonical"},
        ),
        ("meaning", {"rules", "plan", "node_shape", "sharing_profiles", "offered", "admission"}),
        ("text", {"render"}),
        ("whole", {"pipeline", "output", "compare"}),
        ("surface", {"live", "cli", "__main__"}),
    ),
    third_party={
        "yaml": {"gpushare.source"},
        "jsonschema": {"gpushare.schema"},
        "jinja2": {"gpushare.cli.init"},
        "click": {"gpushare.cli"},
        "kubernetes": {"gpushare.live"},
        "_sha2": {"gpushare.artifact"},  # CPython's own from 3.12 on
    },
)

NODE = House(
    name="gpushare_node",
    folder=ROOT / "node-runtime" / "gpushare_node",
    layers=(
        ("words", {"__init__", "clock", "document", "policy", "structs", "tenancy", "worker"}),
        ("core", {"partition", "guard"}),
        ("voice", {"voice"}),
        ("worlds", {"nvml", "procs", "kube", "host"}),
        ("enforcing", {"enforce"}),
        ("applying", {"apply"}),
        ("surface", {"cli", "__main__"}),
    ),
    third_party={
        "yaml": {"gpushare_node.policy", "gpushare_node.cli"},
        "pynvml": {"gpushare_node.nvml"},
        "kubernetes": {"gpushare_node.kube"},
        "urllib3": {"gpushare_node.kube"},
    },
)

HOUSES = pytest.mark.parametrize("house", [COMPILER, NODE], ids=lambda house: house.name)


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Every module that the file imports, anywhere in it: `from a import b` means a.b where that is a module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in known else str(node.module))
    return found


@HOUSES
def test_every_module_imports_only_what_stands_left_of_it(house: House) -> None:
    known = house.modules()
    for module, path in known.items():
        for target in imports(path, known) & set(known):
            assert house.layer(target) <= house.layer(module), f"{module} imports {target}, which stands above it"


@HOUSES
def test_no_module_is_in_an_import_cycle(house: House) -> None:
    known = house.modules()
    graph = {module: (imports(path, known) & set(known)) - {module} for module, path in known.items()}
    TopologicalSorter(graph).prepare()


def test_rules_and_plan_do_not_know_each_other() -> None:
    known = COMPILER.modules()
    for module, path in known.items():
        targets = imports(path, known)
        if module.startswith("gpushare.rules"):
            assert not any(target.startswith("gpushare.plan") for target in targets), module
        if module == "gpushare.plan":
            assert not any(target.startswith("gpushare.rules") for target in targets), module


def test_renderers_are_independent_of_each_other() -> None:
    known = COMPILER.modules()
    for module, path in known.items():
        if module.startswith("gpushare.render."):
            assert not any(target.startswith("gpushare.render") for target in imports(path, known)), module


@HOUSES
def test_third_party_packages_are_imported_in_their_own_rooms_only(house: House) -> None:
    known = house.modules()
    for module, path in known.items():
        for target in imports(path, known):
            top = target.split(".", maxsplit=1)[0]
            if top == house.name or top in sys.stdlib_module_names:
                continue
            rooms = house.third_party.get(top, set())
            assert any(module == room or module.startswith(room + ".") for room in rooms), f"{module} imports {target}"


WORLDS = ("nvml", "procs", "kube", "host")


def test_the_outside_worlds_of_the_node_do_not_know_each_other() -> None:
    known = NODE.modules()
    for module, path in known.items():
        room = [*module.split("."), ""][1]
        others = {f"gpushare_node.{other}" for other in WORLDS if other != room} if room in WORLDS else set()
        for target in imports(path, known):
            assert not any(target == other or target.startswith(f"{other}.") for other in others), f"{module} imports {target}"
