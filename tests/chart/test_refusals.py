"""What the chart refuses: a namespace that is not the bundle's, and values that are of another bundle than its policies."""

from pathlib import Path

import pytest

from tests.chart.bundles import bundle, pool
from tests.support import helm


@pytest.mark.parametrize("major", helm.MAJORS)
def test_another_namespace_than_the_bundles_is_refused(major: int, run_helm, tmp_path: Path) -> None:
    chart = bundle("named", {"only": pool("exclusive")}, namespace="gpu-system").write(tmp_path / "chart")
    for words, code in (((), 1), (("--namespace", "gpu-system"), 0)):
        done = run_helm(major, "template", "gpushare", chart, *words, check=False)
        assert done.returncode == code
        assert code == 0 or "this bundle is for namespace gpu-system, not default" in done.stderr


@pytest.mark.parametrize("major", helm.MAJORS)
def test_digests_of_a_previous_bundle_are_refused(major: int, run_helm, tmp_path: Path) -> None:
    chart = bundle("reused", {"only": pool("exclusive")}).write(tmp_path / "chart")
    done = run_helm(major, "template", "gpushare", chart, "--set-string", "pools.only.policy=00000000", check=False)
    assert done.returncode == 1
    assert "the values are of another bundle than its policy" in done.stderr
