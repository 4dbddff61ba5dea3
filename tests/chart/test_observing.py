"""Under `adoption: observe`: what the chart refuses to render, and its hooks. `test_compiled` has the other objects."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpushare.core import emit
from tests.chart.bundles import Bundle, bundle, pool
from tests.chart.reading import by_identity, documents, is_hook
from tests.support import helm

POOLS = {"slow": pool("time-slicing"), "split": pool("mig")}


def policies(adoption: str | None) -> dict[str, str]:
    spec = {} if adoption is None else {"adoption": adoption}
    text = emit.yaml_text({"kind": "NodePolicy", "spec": spec | {"mode": "mig"}})
    return dict.fromkeys(POOLS, text)


def made(name: str, value: str | None, adoption: str | None) -> Bundle:
    """A chart whose value `adoption` and whose policies say these."""
    changes: dict[str, Any] = {} if value is None else {"adoption": value}
    return bundle(name, POOLS, policies=policies(adoption), **changes)


@pytest.mark.parametrize("major", helm.MAJORS)
@pytest.mark.parametrize(
    ("value", "adoption"), [("observe", None), (None, "observe"), ("enforce", "observe"), ("observe", "enforce")]
)
def test_chart_with_contradicting_adoption_is_refused(
    major: int, value: str | None, adoption: str | None, tmp_path: Path, run_helm: Callable[..., Any]
) -> None:
    folder = made("mixed", value, adoption).write(tmp_path / "chart")
    done = run_helm(major, "template", "gpushare", folder, "--namespace", "gpu-system", check=False)
    assert done.returncode != 0
    assert "its policy and the value `adoption` differ" in done.stderr


@pytest.mark.parametrize("major", helm.MAJORS)
def test_unknown_adoption_value_is_refused_by_the_schema(major: int, tmp_path: Path, run_helm: Callable[..., Any]) -> None:
    folder = made("odd", "Observe", None).write(tmp_path / "chart")
    assert run_helm(major, "template", "gpushare", folder, check=False).returncode != 0


@pytest.mark.parametrize("major", helm.MAJORS)
def test_observing_hooks_clean_up_the_nodes_and_request_no_share(
    major: int, tmp_path: Path, run_helm: Callable[..., Any]
) -> None:
    folder = made("observed", "observe", "observe").write(tmp_path / "chart")
    rendered = documents(run_helm(major, "template", "gpushare", folder, "--namespace", "gpu-system").stdout)
    hooks = by_identity(item for item in rendered if is_hook(item))
    assert not any(kind == "Pod" for kind, *_ in hooks)
    [job] = [item for (kind, *_), item in hooks.items() if kind == "Job"]
    assert "--observed" in job["spec"]["template"]["spec"]["containers"][0]["command"]
    [role] = [item for (kind, *_), item in hooks.items() if kind == "ClusterRole"]
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        (["nodes"], ["get", "list"]),
        (["nodes/status"], ["patch"]),
    ]
