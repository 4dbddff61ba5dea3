"""The house rules of architecture.md, checked on the imports themselves: layers, cycles, places of third-party packages."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "compiler" / "gpushare"

LAYERS = [
    ("words", {"__init__", "diagnostics", "units", "artifact", "emit", "record", "resources"}),
    ("reading", {"scalars", "tree", "source", "shape", "schema", "schemas"}),
    (
        "model",
        {"intent", "intent_reader", "catalog", "card_check", "upstream", "owned_values", "mig", "caps", "shares"}
        | {"labels", "selectors", "lock", "registry"},
    ),
    ("meaning", {"rules", "plan", "node_shape", "sharing_profiles", "offered"}),
    ("text", {"render"}),
    ("whole", {"pipeline", "output", "compare"}),
    ("surface", {"live", "cli", "__main__"}),
]

THIRD_PARTY = {
    "yaml": {"gpushare.source"},
    "jsonschema": {"gpushare.schema"},
    "jinja2": {"gpushare.cli.init"},
    "click": {"gpushare.cli"},
    "kubernetes": {"gpushare.live"},
}


def modules() -> dict[str, Path]:
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


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


def layer(module: str) -> int:
    room = [*module.split("."), "__init__"][1]
    matching = [number for number, (_, rooms) in enumerate(LAYERS) if room in rooms]
    assert matching, f"{module} has no layer: add it to LAYERS, and to docs/architecture.md"
    return matching[0]


def test_every_module_imports_only_what_stands_left_of_it() -> None:
    known = modules()
    for module, path in known.items():
        for target in imports(path, known) & set(known):
            assert layer(target) <= layer(module), f"{module} imports {target}, which stands above it"


def test_no_module_is_in_an_import_cycle() -> None:
    known = modules()
    graph = {module: (imports(path, known) & set(known)) - {module} for module, path in known.items()}
    TopologicalSorter(graph).prepare()


def test_rules_and_plan_do_not_know_each_other() -> None:
    known = modules()
    for module, path in known.items():
        targets = imports(path, known)
        if module.startswith("gpushare.rules"):
            assert not any(target.startswith("gpushare.plan") for target in targets), module
        if module == "gpushare.plan":
            assert not any(target.startswith("gpushare.rules") for target in targets), module


def test_renderers_are_independent_of_each_other() -> None:
    known = modules()
    for module, path in known.items():
        if module.startswith("gpushare.render."):
            assert not any(target.startswith("gpushare.render") for target in imports(path, known)), module


def test_third_party_packages_are_imported_in_their_own_rooms_only() -> None:
    known = modules()
    for module, path in known.items():
        for target in imports(path, known):
            top = target.split(".", maxsplit=1)[0]
            if top == "gpushare" or top in sys.stdlib_module_names:
                continue
            rooms = THIRD_PARTY.get(top, set())
            assert any(module == room or module.startswith(room + ".") for room in rooms), f"{module} imports {target}"
