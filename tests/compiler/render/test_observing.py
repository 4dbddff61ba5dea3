"""A bundle that observes: nothing in it is for another program, and its objects can neither refuse nor displace a pod."""

from typing import Any

import pytest
import yaml

from tests.compiler.render.compiled import document, files
from tests.support import rendering

OBSERVE = "  adoption: observe\n"
QUOTAS = "  quotas: {atlas: {hpc: 8}}\n"


def objects(more: str = "", **wanted: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = rendering.objects(files(more=OBSERVE + more, **wanted))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def test_explicit_adoption_enforce_equals_the_default() -> None:
    assert files(more="  adoption: enforce\n") == files()
    assert not any("adoption" in text for path, text in files().items() if not path.startswith("chart/") or "/files/" in path)


@pytest.mark.parametrize("platform", ["{}", "{stack: device-plugin}", "{stack: existing}", "{partitioner: mig-manager}"])
def test_observing_bundle_configures_no_other_program(platform: str) -> None:
    where = "nodes: {matchLabels: {cloud.google.com/gke-nodepool: a}}, gpusPerNode: 1, priority: 1"
    cloud = f"{{card: t4, {where}, sharing: {{mode: exclusive}}}}"
    enforced = files("hpc", "dense", "cloud", platform=platform, more=QUOTAS, cloud=cloud)
    observed = files("hpc", "dense", "cloud", platform=platform, more=QUOTAS + OBSERVE, cloud=cloud)
    removed = enforced.keys() - observed.keys()
    assert "nodes/cloud.md" in removed
    assert {path.partition("/")[0] for path in removed} <= {"nodes", "gpu-operator", "device-plugin", "existing"}
    assert observed.keys() <= enforced.keys()
    assert not any("nvcr.io" in line for line in observed["images.txt"].splitlines())
    assert document(observed, "chart/values.yaml")["quotas"] == {}


def test_observing_policies_differ_only_in_adoption() -> None:
    enforced, observed = files(), files(more=OBSERVE)
    for path in (path for path in enforced if path.startswith("chart/files/policies/")):
        assert yaml.safe_load(observed[path])["spec"] == yaml.safe_load(enforced[path])["spec"] | {"adoption": "observe"}


@pytest.mark.parametrize("enforce", ["deny", "warn", "audit", "none"])
@pytest.mark.parametrize("scope", ["tenants", "cluster"])
def test_observing_admission_refuses_no_pods(enforce: str, scope: str) -> None:
    found = objects(f"  admission: {{enforce: {enforce}, scope: {scope}}}\n  kubernetes: '1.36'\n")
    bindings = {name: one["spec"] for (kind, name), one in found.items() if kind.endswith("AdmissionPolicyBinding")}
    assert bindings.pop("gpushare-fence")["validationActions"] == ["Deny"]
    assert "gpushare-default-pool" not in bindings
    assert bool(bindings) == (enforce != "none")
    for name, spec in bindings.items():
        assert spec["validationActions"] == (["Audit"] if enforce == "audit" else ["Warn", "Audit"])
        assert found["ValidatingAdmissionPolicy", name]["spec"]["failurePolicy"] == "Ignore"


def test_observing_runtime_may_only_read_and_write_its_condition() -> None:
    found = objects()
    rules = [(rule["resources"][0], verb) for rule in found["ClusterRole", "gpushare-node"]["rules"] for verb in rule["verbs"]]
    assert sorted(rules) == [
        ("nodes", "get"),
        ("nodes", "list"),
        ("nodes", "watch"),
        ("nodes/status", "patch"),
        ("pods", "list"),
        ("pods", "watch"),
    ]
    assert ("Role", "gpushare-node") not in found


def test_observing_pods_preempt_no_pods_and_store_nothing_on_the_host() -> None:
    found = objects()
    assert not any(kind == "ResourceQuota" for kind, _ in found)
    assert ("DaemonSet", "gpushare-release") not in found
    priority = found["PriorityClass", "gpushare-observe"]
    assert (priority["preemptionPolicy"], priority["globalDefault"]) == ("Never", False)
    assert priority["value"] < 0
    for pod in (one["spec"]["template"]["spec"] for (kind, _), one in found.items() if kind == "DaemonSet"):
        assert pod["priorityClassName"] == "gpushare-observe"
        assert not any(one.get("hostPath", {}).get("type", "").endswith("Create") for one in pod["volumes"])
        for container in (*pod["initContainers"], *pod["containers"]):
            security = container["securityContext"]
            assert "privileged" not in security
            assert security["capabilities"]["drop"] == ["ALL"]
            assert not {"KILL"} & set(security["capabilities"].get("add", ()))
            assert not any(one["name"] == "NVIDIA_MIG_CONFIG_DEVICES" for one in container["env"])


def test_observing_readme_says_what_to_check_and_how_to_switch() -> None:
    text = files(more=OBSERVE)["README.md"]
    for said in (
        "# GPUs of test-cluster: observed",
        "gpushare.dev/would",
        "## Changing to enforce",
        "## Changing back to observe",
        "helm uninstall gpushare",
    ):
        assert said in text
    assert "kind: Pod" not in text


def test_observing_readme_has_the_image_and_the_labels() -> None:
    text = files("hpc", more=OBSERVE)["README.md"]
    assert "docker buildx build --push" in text
    assert "    kubectl label nodes NODE p=hpc\n" in text
    assert text.index("kubectl label") < text.index("helm upgrade")
