"""A chart with pools of both vendors: what pods of AMD's have and lack, objects of AMD's operator, rights and releases."""

from collections.abc import Callable
from typing import Any

import pytest

from gpushare.core import emit
from gpushare.vendors.amd import AMD
from tests.chart.bundles import Bundle, bundle, pool
from tests.chart.reading import Object, by_identity, containers_of, pod_of
from tests.support import helm

AMD_POOL = pool("exclusive", vendor="amd", card="mi300x", migCapable=False, resources=["amd.com/cpx_nps4"])
VENDORS = {"amd": AMD.chart_values("kube-amd-gpu")}
SPEC = {"selector": {"gpushare.dev/pool": "parts"}, "configManager": {"enable": True}}


def made(name: str, **changes: Any) -> Bundle:
    both = bundle(name, {"parts": AMD_POOL, "slow": pool("time-slicing")}, vendors=VENDORS, **changes)
    files = {
        "files/amd/device-configs/parts.yaml": emit.yaml_text(SPEC),
        "files/amd/config.json": '{"gpu-config-profiles": {}}\n',
    }
    return Bundle(name=both.name, values=both.values, files=both.files | files)


BOTH = made("both-vendors")


@pytest.fixture(params=helm.MAJORS)
def objects(request: pytest.FixtureRequest, rendered: Callable[[Bundle, int], list[Object]]) -> list[Object]:
    return rendered(BOTH, request.param)


def named(objects: list[Object], kind: str, name: str, namespace: str = "gpu-system") -> Object:
    [found] = [
        one
        for one in objects
        if (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", namespace)) == (kind, name, namespace)
    ]
    return found


def test_pods_of_amds_pools_read_sysfs_and_ask_nothing_of_nvidias_runtime(objects: list[Object]) -> None:
    pod = pod_of(named(objects, "DaemonSet", "gpushare-parts"))
    assert "runtimeClassName" not in pod
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}} in pod["volumes"]
    for container in containers_of(pod).values():
        assert {"name": "sys", "mountPath": "/sys", "readOnly": True} in container["volumeMounts"]
        assert not [one["name"] for one in container["env"] if one["name"].startswith("NVIDIA_")]
        # KFD shows the devices, and what a process has of each, only to a container that may open them.
        assert container["securityContext"]["privileged"]


def test_pods_of_nvidias_pools_are_as_without_amd(
    objects: list[Object], rendered: Callable[[Bundle, int], list[Object]]
) -> None:
    alone = rendered(bundle("slow-alone", {"slow": pool("time-slicing")}), 4)
    assert named(objects, "DaemonSet", "gpushare-slow") == named(alone, "DaemonSet", "gpushare-slow")


def test_the_operators_objects_are_in_its_namespace(objects: list[Object]) -> None:
    config = named(objects, "DeviceConfig", "gpushare-parts", "kube-amd-gpu")
    assert config["spec"] == SPEC
    manager = named(objects, "ConfigMap", "gpushare-dcm", "kube-amd-gpu")
    assert manager["data"] == {"config.json": '{"gpu-config-profiles": {}}\n'}
    role = named(objects, "Role", "gpushare-node", "kube-amd-gpu")
    assert {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]} == {
        "pods": ["delete"],
        "events": ["list"],
    }


def test_each_node_without_a_pool_is_released_by_pods_that_start_there(objects: list[Object]) -> None:
    vendor = {
        name: next(
            one
            for one in pod_of(named(objects, "DaemonSet", name))["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]["nodeSelectorTerms"][0]["matchExpressions"]
            if one["key"] == "gpushare.dev/vendor"
        )
        for name in ("gpushare-release", "amd-gpushare-release")
    }
    assert [one["operator"] for one in vendor.values()] == ["NotIn", "In"]
    assert all(one["values"] == ["amd"] for one in vendor.values())
    assert pod_of(named(objects, "DaemonSet", "gpushare-release"))["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in pod_of(named(objects, "DaemonSet", "amd-gpushare-release"))


def test_the_fence_knows_the_namespace_of_amds_operator(objects: list[Object]) -> None:
    variables = named(objects, "ValidatingAdmissionPolicy", "gpushare-fence")["spec"]["variables"]
    assert {"name": "restarted", "expression": '{"kube-amd-gpu":"daemonset-name"}'} in variables


def test_no_test_pod_takes_an_amd_gpu(objects: list[Object]) -> None:
    assert [one["metadata"]["name"] for one in objects if one["kind"] == "Pod"] == ["gpushare-test-slow"]


def test_a_node_of_amds_is_released_by_a_container_that_sees_its_devices(objects: list[Object]) -> None:
    [container] = containers_of(pod_of(named(objects, "DaemonSet", "amd-gpushare-release"))).values()
    assert container["securityContext"]["privileged"]


def test_without_the_operator_nothing_is_made_in_its_namespace(rendered: Callable[[Bundle, int], list[Object]]) -> None:
    plain = bundle("amd-existing", {"parts": AMD_POOL}, vendors=VENDORS)
    assert not [one for one in by_identity(rendered(plain, 4)) if "kube-amd-gpu" in one]


def test_an_observing_chart_has_no_object_of_amds_operator(rendered: Callable[[Bundle, int], list[Object]]) -> None:
    text = emit.yaml_text({"kind": "NodePolicy", "spec": {"adoption": "observe"}})
    each = made("observed-vendors", adoption="observe", policies={"parts": text, "slow": text})
    kinds = {one["kind"] for one in rendered(each, 4)}
    assert "DeviceConfig" not in kinds
    assert not [one for one in by_identity(rendered(each, 4)) if "kube-amd-gpu" in one]
