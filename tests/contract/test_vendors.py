"""A vendor's names are in its module: nothing else spells its prefix, but what reads or explains its own configurations."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare.vendors import OTHERS, VENDORS
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.policy import Vendor
from tests.support.paths import ROOT

ALLOWED = {
    "compiler/gpushare": {
        "vendors": "the names themselves",
        "cluster/importing": "reads NVIDIA's own configurations, values and labels, and no other vendor's",
    },
    "node-runtime/gpushare_node": {
        "vendors": "the names themselves",
        "contract": "whose the GPUs of a policy are; a remedy names the label that NVIDIA's plugin reads",
    },
}


def is_allowed(house: str, path: Path) -> bool:
    return any(path.is_relative_to(ROOT / house / folder) for folder in ALLOWED[house])


def texts(path: Path) -> Iterator[ast.Constant]:
    """Yield the texts of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


@pytest.mark.parametrize("house", ALLOWED)
def test_only_nvidia_packages_contain_nvidias_domain(house: str) -> None:
    spelling = {
        f"{path.relative_to(ROOT)}:{text.lineno}"
        for path in (ROOT / house).rglob("*.py")
        for text in texts(path)
        if NVIDIA.domain in str(text.value).replace("\\", "").replace("_", ".") and not is_allowed(house, path)
    }
    assert not spelling, f"ask its package vendors instead: {sorted(spelling)}"


BY_NAME = {
    "offering/backends/device_plugin.py": "NVIDIA's device plugin",
    "offering/backends/dra.py": "NVIDIA's DRA driver",
    "facts/catalog/upstream.py": "the charts of the stacks, which are NVIDIA's",
    "compare/stack_effects.py": "a change of NVIDIA's stack",
    "cluster/live/inventory.py": "the operator's ClusterPolicies",
    "cluster/live/reader.py": "the right to read them",
    "render/monitoring/alerts.py": "the remedy of an alert on MPS",
    "render/gitops/argocd.py": "the operator's kinds, which its project permits, and their health",
    "render/existing.py": "the settings of a plugin that is there already",
    "rules/platform.py": "the stacks",
}
"""Modules of the compiler that ask NVIDIA by name, and for what; all others ask the vendor of a card or a resource."""


def test_only_listed_modules_import_nvidia() -> None:
    root = ROOT / "compiler/gpushare"
    importing = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if not is_allowed("compiler/gpushare", path)
        and "from gpushare.vendors.nvidia import" in path.read_text(encoding="utf-8")
    }
    assert importing == BY_NAME.keys()


AMD_BY_NAME = {
    "compiler/gpushare": {
        "offering/backends/__init__.py": "registers its device plugin",
        "render/stacks/__init__.py": "registers what its programs add to a bundle",
    },
    "node-runtime/gpushare_node": {},
}
"""Modules that know AMD by name, and for what: who adds a vendor looks at each. All others ask the vendor for a trait.

Modules and packages whose names begin with the vendor's are its own.
"""

_AMD = re.compile(r"(?i:(?<![a-z])amd(?![a-z]))|Amd[A-Z]")


def is_own(path: Path) -> bool:
    return any(part.partition("_")[0] == "amd" for part in path.with_suffix("").parts)


def identifiers(path: Path) -> Iterator[str]:
    """Yield the names that a module uses or defines, and its texts of one word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.Constant(value=str(name)) if name.isidentifier():
                yield name
            case ast.ImportFrom(module=str(module), names=names):
                yield from (*module.split("."), *(one.name for one in names))


@pytest.mark.parametrize("house", AMD_BY_NAME)
def test_only_listed_modules_know_amd(house: str) -> None:
    root = ROOT / house
    knowing = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if not is_allowed(house, path)
        and not is_own(path.relative_to(root))
        and any(_AMD.search(name.replace("_", " ")) for name in identifiers(path))
    }
    assert knowing == AMD_BY_NAME[house].keys(), "ask the vendor of a card or a resource for a trait, or list the module"


def patterns(document: object) -> Iterator[str]:
    """Yield the patterns of a schema that accept a vendor's resources alone."""
    if isinstance(document, dict):
        pattern = document.get("pattern")
        if isinstance(pattern, str) and re.search(pattern, NVIDIA.whole_gpu) and not re.search(pattern, "example.org/gpu"):
            yield pattern
    if isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            yield from patterns(part)


@pytest.mark.parametrize(
    "path",
    [*(ROOT / "compiler/gpushare/schemas").glob("*.json"), ROOT / "charts/gpushare/values.schema.json"],
    ids=lambda path: path.name,
)
def test_a_schema_with_one_vendors_resources_accepts_every_vendors(path: Path) -> None:
    for pattern in patterns(json.loads(path.read_text(encoding="utf-8"))):
        refused = [vendor.name for vendor in VENDORS.values() if not re.search(pattern, vendor.whole_gpu)]
        assert not refused, f"{pattern} refuses {refused}"


def test_a_policy_has_a_word_for_every_vendor() -> None:
    assert list(Vendor) == list(VENDORS)


_NAMES = re.compile("|".join(re.escape(text) for one in OTHERS.values() for text in (one.name, one.domain)), re.IGNORECASE)
_EXAMPLES = {"values.yaml", "README.md"}
"""Files of the chart that explain by an example."""


def test_chart_and_templates_know_no_other_vendor_by_name() -> None:
    """What differs is in the values that the compiler writes; comments may explain by an example."""
    knowing = {
        f"{path.relative_to(ROOT)}: {line}"
        for path in (*(ROOT / "charts/gpushare").rglob("*"), *(ROOT / "templates").rglob("*"))
        if path.is_file() and path.name not in _EXAMPLES
        for line in re.sub(r"\{\{-? /\*.*?\*/ -?\}\}|\{\{/\*.*?\*/\}\}", "", path.read_text(), flags=re.DOTALL).splitlines()
        if _NAMES.search(line) and not line.lstrip().startswith("#")
    }
    assert not knowing
