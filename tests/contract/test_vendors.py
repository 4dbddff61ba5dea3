"""A vendor's names are in its module: nothing else spells its prefix, but what reads or explains its own configurations."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare.vendors.nvidia import NVIDIA
from gpushare_node import vendors
from gpushare_node.core.policy import Vendor
from tests.support.paths import ROOT

ALLOWED = {
    "compiler/gpushare": {
        "vendors": "the names themselves",
        "importing": "reads NVIDIA's own configurations, values and labels, and no other vendor's",
    },
    "node-runtime/gpushare_node": {
        "vendors": "the names themselves",
        "reporting": "a remedy names the label that NVIDIA's plugin reads",
    },
}


def texts(path: Path) -> Iterator[ast.Constant]:
    """Yield the texts of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


@pytest.mark.parametrize("house", ALLOWED)
def test_only_nvidia_packages_contain_nvidias_prefix(house: str) -> None:
    spelling = {
        (path.relative_to(ROOT / house).parts[0], f"{path.relative_to(ROOT)}:{text.lineno}")
        for path in (ROOT / house).rglob("*.py")
        for text in texts(path)
        if NVIDIA.prefix in str(text.value).replace("\\", "")  # a regular expression escapes its dot
    }
    elsewhere = sorted(place for folder, place in spelling if folder not in ALLOWED[house])
    assert not elsewhere, f"ask its package vendors instead: {elsewhere}"


def test_compiler_and_node_runtime_have_the_same_names() -> None:
    ours = (
        NVIDIA.prefix,
        NVIDIA.whole_gpu,
        NVIDIA.gpu_resources,
        NVIDIA.plugin_label,
        NVIDIA.layout_label,
        NVIDIA.sharing_label,
        NVIDIA.deploy_labels,
    )
    node = vendors.of(Vendor.NVIDIA)
    assert ours == (
        node.resources,
        node.whole_gpu,
        node.gpu_resources,
        node.plugin_label,
        node.layout_label,
        node.sharing_label,
        node.deploy_labels,
    )


def test_every_vendor_of_a_policy_is_implemented_on_the_node() -> None:
    assert [vendors.of(vendor).resources for vendor in Vendor] == [vendor.resources for vendor in Vendor]
