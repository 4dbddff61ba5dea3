"""Every package of both folders is in the one wheel: an editable install would not notice that one is missing."""

import tomllib

from tests.support.paths import ROOT

FOLDERS = ("compiler/gpushare", "node-runtime/gpushare_node")


def test_every_package_is_installed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    on_disk = {
        ".".join(init.parent.relative_to((ROOT / folder).parent).parts)
        for folder in FOLDERS
        for init in (ROOT / folder).rglob("__init__.py")
    }
    data = {"gpushare.schemas", "gpushare.findings", *setuptools["package-dir"]} - {"gpushare", "gpushare_node"}
    assert set(setuptools["packages"]) - data == on_disk


def test_a_second_project_is_refused_by_package_indexes() -> None:
    """PyPI takes no project with this classifier, and every project but the published one has it."""
    for path in (ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        private = "Private :: Do Not Upload" in project["classifiers"]
        assert private == (project["name"] != "gpushare-compiler"), path
