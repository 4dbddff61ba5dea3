"""`gpushare claims` prints the templates of a namespace, and says why it has none."""

import pytest
import yaml

from gpushare.cli.commands import run
from gpushare.cli.exits import CouldNotRunError
from tests.support.paths import ROOT

INTENT = str(ROOT / "examples/20-dra/intent.yaml")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run("gpushare", ["claims", *arguments], "", None)
    return code, capsys.readouterr().out


def test_a_namespace_gets_the_templates_of_the_pools_that_it_may_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(capsys, INTENT, "astro")
    found = list(yaml.safe_load_all(text))
    assert code == 0
    assert {one["metadata"]["namespace"] for one in found} == {"astro"}
    names = {one["metadata"]["name"] for one in found}
    assert {"gpushare-simulation.gpu", "gpushare-halves.2g.12gb-share"} <= names
    assert not [name for name in names if name.startswith("gpushare-notebooks.")]  # for other namespaces
    _, text = printed(capsys, INTENT, "course", "--pool", "notebooks")
    assert [one["metadata"]["name"] for one in yaml.safe_load_all(text)] == [
        "gpushare-notebooks.share",
        "gpushare-notebooks.large",
    ]


def test_a_namespace_without_a_pool_of_dra_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CouldNotRunError, match="no pool with backend dra is for namespace 'astro'"):
        printed(capsys, str(ROOT / "examples/02-t4-notebooks/intent.yaml"), "astro")
