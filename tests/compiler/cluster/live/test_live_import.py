"""`gpushare import --live`: the intent of what a cluster has, under the printed rights, and what could not be read."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from gpushare.cluster import importing
from gpushare.cluster.importing import InputFile, Wanted
from gpushare.cluster.live import inventory
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.dra_cluster import DRA, add_claim, use
from tests.compiler.cluster.live.rights import allowed_by
from tests.support.fake_api.server import ApiServer
from tests.support.fake_api.store import KINDS

CONFIG = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
"""
DRA_CHART = "dra-driver-nvidia-gpu"
OPERATOR = ("--operator-namespace", "nvidia-ops")


def fill(api: ApiServer) -> None:
    """A T4 whose label names a config in the operator's namespace, a quota, and a ConfigMap of no concern."""
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1", "nvidia.com/device-plugin.config": "t4"}
    api.add_node("t4-1", labels=labels)
    api.add_node("cpu-1")
    api.add("configmaps", "slicing", {"data": {"t4": CONFIG}}, namespace="nvidia-ops")
    api.add("configmaps", "other", {"data": {"text": "\x1b[2J"}}, namespace="nvidia-ops")
    api.add("resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu.shared": "2k"}}}, namespace="team")


def test_live_import_works_under_the_printed_permissions(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
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


def test_forbidden_resources_are_reported(api: ApiServer, ask: Ask) -> None:
    fill(api)
    api.allows = lambda _, path: "/configmaps" not in path and "/resourcequotas" not in path
    done = ask("import", "--live", *OPERATOR)
    assert "could not read configmaps of nvidia-ops: 403" in done.stderr
    assert "could not read resourcequotas: 403" in done.stderr
    assert "quotas" not in yaml.safe_load(done.stdout or "spec: {}")["spec"]


def release(chart: str, version: str, values: dict[str, Any]) -> dict[str, Any]:
    """The Secret in which Helm keeps a release, with the chart's own values beside the user's."""
    document = {
        "name": "theirs",
        "config": values,
        "chart": {
            "metadata": {"name": chart, "version": version},
            "values": {"dcgm": {"enabled": False}, "gfd": {"enabled": True}},
        },
    }
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(document).encode()))).decode()
    return {"metadata": {"labels": {"owner": "helm", "status": "deployed"}}, "data": {"release": packed}}


def test_release_gives_only_its_version_namespace_and_user_values(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    fill(api)
    values = {"driver": {"version": "580.105.08"}, "operator": {"runtimeClass": "nvidia-x"}}
    api.add("secrets", "sh.helm.release.v1.theirs.v1", release("gpu-operator", "v25.3.4", values), namespace="nvidia-ops")
    done = ask("import", "--live", "--helm-values", "--stack", "gpu-operator", *OPERATOR, "-o", tmp_path / "intent.yaml")
    assert done.returncode == 0, done.stderr
    spec = yaml.safe_load((tmp_path / "intent.yaml").read_text())["spec"]
    assert spec["namespace"] == "nvidia-ops"
    assert (spec["platform"]["version"], spec["platform"]["driver"]) == ("v25.3.4", {"version": "580.105.08"})
    assert "nvidia-x" in (tmp_path / "intent.yaml").read_text() + done.stderr
    assert "dcgm" not in (tmp_path / "intent.yaml").read_text()
    stays = ask("import", "--live", "--helm-values", *OPERATOR)
    assert yaml.safe_load(stays.stdout)["spec"]["platform"]["runtimeClass"] == "nvidia-x"


def fill_with_dra(api: ApiServer) -> None:
    """Two T4 nodes of DRA as an installed bundle and two pods with claims leave them, and another driver's class and claim."""
    cluster = LiveCluster(api, DRA)
    for name in ("t4-1", "t4-2"):
        labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "2"}
        cluster.add_node(name, "notebooks", labels=labels)
        api.edit("nodes", name, lambda node: node["status"].update(nodeInfo={"kubeletVersion": "v1.36.3"}))
    use(api, "team/a-large", "t4-1", "gpu-0", "7680Mi")
    use(api, "team/lab-0", "t4-1", "gpu-0")
    add_claim(api, "physics", "other", "another", "")
    api.add("deviceclasses", "another", {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'example.org'"}}]}})


def test_what_the_cluster_has_of_dra_is_reported_as_from_the_printed_objects(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    fill_with_dra(api)
    api.allows = allowed_by(list(yaml.safe_load_all(gpushare("rbac", "--import", "nvidia-ops").stdout)))
    done = ask("import", "--live", *OPERATOR)
    assert done.returncode == 1, "no pool is left"
    assert "could not read" not in done.stderr
    assert "DeviceClass another is not imported" in done.stderr
    assert "node t4-1 has gpushare.dev/backend: dra: left out" in done.stderr
    printed = tmp_path / "printed.json"
    plurals = ("nodes", "resourcequotas", "deviceclasses", "resourceclaimtemplates", "resourceclaims")
    lists = [{"apiVersion": KINDS[one][0], "kind": f"{KINDS[one][1]}List", "items": api.all(one)} for one in plurals]
    printed.write_text("\n---\n".join(map(json.dumps, lists)))
    assert "is not imported: objects of DRA are not read" in ask("import", printed).stderr


@pytest.mark.parametrize("status", [403, 404])
def test_objects_of_dra_that_cannot_be_read_are_reported(api: ApiServer, ask: Ask, status: int) -> None:
    fill(api)
    api.fail("GET /apis/resource.k8s.io/", status)
    done = ask("import", "--live", *OPERATOR)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"could not read objects of DRA (resource.k8s.io/v1): {status}") == 1
    assert len(yaml.safe_load(done.stdout)["spec"]["pools"]) == 1


def test_release_of_the_dra_driver_is_reported(api: ApiServer, ask: Ask) -> None:
    fill_with_dra(api)
    values = {"consumableShares": "memory", "featureGates": {"ConsumableShares": True}}
    api.add("secrets", "sh.helm.release.v1.theirs.v1", release(DRA_CHART, "0.5.0", values), namespace=DRA_CHART)
    assert "warning GS874" in ask("import", "--live", "--helm-values").stderr


class OnePolicy:
    """An API server with a node, a ClusterPolicy, and the releases of NVIDIA's operator and DRA driver."""

    LISTS: ClassVar[dict[str, list[Any]]] = {
        "/api/v1/nodes": [
            {"metadata": {"name": "t4-1", "labels": {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1"}}}
        ],
        "/apis/nvidia.com/v1/clusterpolicies": [
            {
                "metadata": {
                    "name": "p",
                    "labels": {"helm.sh/chart": "gpu-operator-v25.3.4"},
                    "annotations": {"meta.helm.sh/release-namespace": "nvidia-ops", "other": "x"},
                },
                "spec": {"driver": {"enabled": True, "version": "580.105.08"}, "operator": {"runtimeClass": "nvidia-x"}},
            }
        ],
        "/api/v1/namespaces/nvidia-ops/secrets": [release("gpu-operator", "v25.3.4", {}), release(DRA_CHART, "0.5.0", {})],
    }

    def get(self, path: str, _query: object = None) -> dict[str, Any]:
        return {"items": self.LISTS.get(path, [])}

    def read(self, *_: object, **__: object) -> bytes:
        raise AssertionError


@pytest.mark.parametrize("stack", ["", "gpu-operator"])
def test_clusterpolicy_gives_its_release_version(stack: str) -> None:
    found = inventory.read(OnePolicy(), ["nvidia-ops"], values=False)
    inputs = [InputFile(name=name, document=document) for name, document in found.objects]
    spec = importing.build(inputs, "", Wanted(stack=stack)).draft.spec
    if stack:
        assert (spec["namespace"], spec["platform"]["version"]) == ("nvidia-ops", "v25.3.4")
    else:
        assert spec["platform"]["runtimeClass"] == "nvidia-x"


def test_clusterpolicy_has_the_values_of_the_operator_and_not_of_the_dra_driver() -> None:
    found = inventory.read(OnePolicy(), ["nvidia-ops"], values=True)
    assert [one["chart"] for name, one in found.objects if name.startswith("HelmRelease")] == [DRA_CHART]


def test_live_option_without_live_and_missing_input_are_errors(ask: Ask) -> None:
    assert ask("import", *OPERATOR, "x.yaml").returncode == 2
    assert ask("import").returncode == 2
    assert ask("import", "--live", "--operator-namespace", "No Name").returncode == 2
