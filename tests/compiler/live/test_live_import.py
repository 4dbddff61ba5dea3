"""`gpushare import --live`: the intent of what a cluster has, under the printed rights, and what could not be read."""

from pathlib import Path

import yaml

from tests.compiler.cli.process import gpushare
from tests.compiler.live.conftest import Ask
from tests.compiler.live.rights import allowed_by
from tests.support.fake_api.server import ApiServer

CONFIG = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
"""
OPERATOR = ("--operator-namespace", "nvidia-ops")


def fill(api: ApiServer) -> None:
    """A T4 whose label names a config in the operator's namespace, a quota, and a ConfigMap of no concern."""
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1", "nvidia.com/device-plugin.config": "t4"}
    api.add_node("t4-1", labels=labels)
    api.add_node("cpu-1")
    api.add("configmaps", "slicing", {"data": {"t4": CONFIG}}, namespace="nvidia-ops")
    api.add("configmaps", "other", {"data": {"text": "\x1b[2J"}}, namespace="nvidia-ops")
    api.add("resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu.shared": "2k"}}}, namespace="team")


def test_the_intent_is_that_of_the_cluster_under_the_printed_rights(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    fill(api)
    rights = gpushare("rbac", "--import", "nvidia-ops").stdout
    api.allows = allowed_by(list(yaml.safe_load_all(rights)))
    done = ask("import", "--live", *OPERATOR, "-o", tmp_path / "intent.yaml")
    assert done.returncode == 0, done.stderr
    assert "could not read" not in done.stderr
    spec = yaml.safe_load((tmp_path / "intent.yaml").read_text())["spec"]
    [(pool, fields)] = spec["pools"].items()
    assert (fields["card"], fields["sharing"]["mode"], fields["sharing"]["replicas"]) == ("t4", "time-slicing", 4)
    assert spec["quotas"] == {"team": {pool: 2000}}  # the API server itself shortens 2000 to 2k
    assert gpushare("check", tmp_path / "intent.yaml").returncode == 0


def test_what_is_forbidden_is_said(api: ApiServer, ask: Ask) -> None:
    fill(api)
    api.allows = lambda _, path: "/configmaps" not in path and "/resourcequotas" not in path
    done = ask("import", "--live", *OPERATOR)
    assert "could not read configmaps of nvidia-ops: 403" in done.stderr
    assert "could not read resourcequotas: 403" in done.stderr
    assert "quotas" not in yaml.safe_load(done.stdout or "spec: {}")["spec"]


def test_an_option_without_live_and_nothing_at_all_are_errors(ask: Ask) -> None:
    assert ask("import", *OPERATOR, "x.yaml").returncode == 2
    assert ask("import").returncode == 2
    assert ask("import", "--live", "--operator-namespace", "No Name").returncode == 2
