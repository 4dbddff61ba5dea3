"""Every package of both projects is in what pip installs: an editable install would not notice that one is missing."""

import tomllib

import pytest

from tests.support.paths import ROOT


@pytest.mark.parametrize(("project", "folder"), [(".", "compiler/gpushare"), ("node-runtime", "node-runtime/gpushare_node")])
def test_every_package_is_installed(project: str, folder: str) -> None:
    setuptools = tomllib.loads((ROOT / project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    parent = (ROOT / folder).parent
    on_disk = {".".join(init.parent.relative_to(parent).parts) for init in (ROOT / folder).rglob("__init__.py")}
    data = {"gpushare.schemas", "gpushare.findings", *setuptools.get("package-dir", {})} - {"gpushare"}
    assert set(setuptools["packages"]) - data == on_disk - data
