"""What the rendered objects may and must say, whoever rendered them."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from gpushare.core import emit, resources
from gpushare_node.adapters.kube import uninstall
from gpushare_node.backends.backend import DEVICES
from gpushare_node.backends.dra.claims import FOLDER
from tests.chart.bundles import (
    BUNDLES,
    DEVICE_PLUGIN,
    EXISTING,
    FIFTY,
    HOSTLESS,
    MIG_MANAGER,
    MODES,
    ONE,
    Bundle,
    admission,
    bundle,
    pool,
)
from tests.chart.reading import Object, by_identity, containers_of, is_hook, pod_of, problems
from tests.support import helm, scale

SMALL = [each for each in BUNDLES if each is not FIFTY]
VERSIONS = sorted(
    {kubernetes_validate.utils.major_minor(version) for version in kubernetes_validate.utils.all_versions()}
    - {f"1.{minor}" for minor in range(30)}
)


@pytest.fixture(scope="session")
def objects(rendered):
    """The objects of a bundle as Helm 4 renders them."""
    return cache(lambda bundle: by_identity(rendered(bundle, 4)))


@pytest.fixture(scope="session")
def pods(objects):
    """The pods of a bundle by the name of their DaemonSet."""
    return lambda bundle: {key[2]: pod_of(item) for key, item in objects(bundle).items() if key[0] == "DaemonSet"}


@pytest.mark.parametrize("version", scale.part(VERSIONS[::-1], len(VERSIONS) - 1))
def test_kubernetes_knows_every_field(version: str, objects) -> None:
    every = [*objects(MODES).values(), *objects(MIG_MANAGER).values()]
    for item in {emit.canonical_json(item): item for item in every}.values():
        if item["kind"].startswith("MutatingAdmissionPolicy") and tuple(map(int, version.split("."))) < (1, 36):
            continue  # compiled for 1.36 and later alone
        assert kubernetes_validate.validate(item, version, strict=True) == version


def test_kubernetes_versions_reach_from_the_lowest_to_the_newest() -> None:
    assert VERSIONS[0] == "1.30"
    assert len(VERSIONS) >= 8


@pytest.mark.parametrize("bundle", scale.part(SMALL, 4), ids=lambda bundle: bundle.name)
@pytest.mark.parametrize("major", helm.MAJORS)
def test_rendered_yaml_is_clean_under_yamllint(bundle: Bundle, major: int, render) -> None:
    # Helm prints a separator before each document and an empty line after some.
    text = "---" + render(bundle, major).removeprefix("---").replace("\n\n---\n", "\n---\n").rstrip("\n") + "\n"
    assert problems(text) == []


def test_generated_values_and_files_are_clean_under_yamllint(tmp_path) -> None:
    for each in BUNDLES:
        folder = each.write(tmp_path / each.name)
        for file in [folder / "values.yaml", *sorted((folder / "files").rglob("*.yaml"))]:
            assert problems(file.read_text()) == [], file


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_no_list_that_server_side_apply_merges_by_key_has_a_key_twice(bundle: Bundle, pods) -> None:
    for pod in pods(bundle).values():
        containers = list(containers_of(pod).values())
        lists = [[volume["name"] for volume in pod["volumes"]], [container["name"] for container in containers]]
        for container in containers:
            lists.append([variable["name"] for variable in container["env"]])
            lists.append([mount["mountPath"] for mount in container["volumeMounts"]])
            lists.append([(port["containerPort"], port["protocol"]) for port in container.get("ports", [])])
            lists.append([port["name"] for port in container.get("ports", [])])
        assert [key for keys in lists for key, count in Counter(keys).items() if count > 1] == []


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_field_references_have_an_explicit_api_version(bundle: Bundle, pods) -> None:
    # Server-side apply compares a fieldRef as one value: without its default, a second field manager meets a conflict.
    for pod in pods(bundle).values():
        for container in containers_of(pod).values():
            references = [variable["valueFrom"]["fieldRef"] for variable in container["env"] if "valueFrom" in variable]
            assert references
            assert all(reference["apiVersion"] == "v1" for reference in references)


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_every_mount_has_a_volume_and_every_volume_a_mount(bundle: Bundle, pods) -> None:
    for pod in pods(bundle).values():
        mounted = {mount["name"] for container in containers_of(pod).values() for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_names_fit_and_selectors_match_pods(bundle: Bundle, objects) -> None:
    for (kind, _, name), item in objects(bundle).items():
        assert len(name) <= 253
        if kind == "DaemonSet":
            assert len(f"{name}-xxxxx") <= 63
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert item["spec"]["selector"]["matchLabels"].items() <= labels.items()
            assert not {"helm.sh/chart", "app.kubernetes.io/version", "app.kubernetes.io/instance"} & labels.keys()


def test_selectors_of_all_daemon_sets_differ(objects) -> None:
    selectors = [item["spec"]["selector"]["matchLabels"] for key, item in objects(FIFTY).items() if key[0] == "DaemonSet"]
    for one in selectors:
        assert sum(one.items() <= other.items() for other in selectors) == 1


def test_the_chart_owns_neither_namespaces_nor_nodes(objects) -> None:
    for each in BUNDLES:
        assert not {key[0] for key in objects(each)} & {"Namespace", "Node"}


def test_hooks_are_for_uninstalling_and_testing_alone(objects) -> None:
    for each in BUNDLES:
        hooks = [item for item in objects(each).values() if is_hook(item)]
        tests = {f"gpushare-test-{name}" for name in each.values["pools"]}
        uninstall = {"gpushare-uninstall"} if each is not EXISTING else set()
        assert {item["metadata"]["name"] for item in hooks} == tests | uninstall
        for item in hooks:
            moment = "pre-delete" if item["metadata"]["name"] == "gpushare-uninstall" else "test"
            assert item["metadata"]["annotations"]["helm.sh/hook"] == moment


def test_uninstall_rbac_is_deleted_even_when_the_job_fails(objects) -> None:
    for key, item in objects(MODES).items():
        if key[2] == "gpushare-uninstall":
            policy = item["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            assert ("hook-failed" in policy) == (key[0] != "Job")


def test_uninstall_job_has_an_active_deadline(objects) -> None:
    for timeout, seconds in (("3m", 180), ("90s", 90), ("2h", 7200)):
        each = bundle("timeout", {"only": pool("exclusive")}, uninstall={"release": True, "timeout": timeout, "goOn": False})
        job = objects(each)["Job", "gpu-system", "gpushare-uninstall"]["spec"]
        assert job["activeDeadlineSeconds"] == seconds + uninstall.ENDING_SECONDS + 120


def test_uninstall_job_names_its_pod_and_ends_before_helms_timeout(objects) -> None:
    own = yaml.safe_load((resources.chart() / "values.yaml").read_text())["uninstall"]["timeout"]
    assert own == MODES.values["uninstall"]["timeout"] == "3m"
    [container] = objects(MODES)["Job", "gpu-system", "gpushare-uninstall"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["--timeout", own]
    assert {"POD_NAME", "POD_UID", "POD_NAMESPACE"} <= {one["name"] for one in container["env"]}
    assert 180 + uninstall.ENDING_SECONDS < 300, "Helm's own --timeout"


def test_each_pool_is_tested_with_each_of_its_resources(objects) -> None:
    for name, values in MODES.values["pools"].items():
        test = objects(MODES)["Pod", "gpu-system", f"gpushare-test-{name}"]["spec"]
        assert [one["resources"]["limits"].keys() - {"cpu", "memory"} for one in test["containers"]] == [
            {resource} for resource in values["resources"]
        ]
        assert test["nodeSelector"] == {"gpushare.dev/pool": name}


def test_only_the_init_container_is_privileged_and_only_where_it_must_switch_mig(pods) -> None:
    found = {
        (each.name, daemon_set, name)
        for each in (MODES, MIG_MANAGER)
        for daemon_set, pod in pods(each).items()
        for name, container in containers_of(pod).items()
        if container["securityContext"].get("privileged")
    }
    on_mig_cards = {("modes", f"gpushare-{name}", "partition") for name in ("dense", "hpc", "training")}
    assert found == on_mig_cards | {("modes", "gpushare-release", "release")}


def test_other_containers_keep_only_their_required_capabilities(pods) -> None:
    expected = {
        ("gpushare-dense", "enforce"): ["KILL", "SYS_ADMIN", "SYS_PTRACE"],
        ("gpushare-hpc", "enforce"): ["KILL", "SYS_PTRACE"],
        ("gpushare-notebooks", "enforce"): ["KILL", "SYS_PTRACE"],
        ("gpushare-notebooks", "partition"): ["KILL", "SYS_ADMIN", "SYS_PTRACE"],
        ("gpushare-serving", "enforce"): ["KILL", "SYS_PTRACE"],
        ("gpushare-serving", "partition"): ["KILL", "SYS_ADMIN", "SYS_PTRACE"],
        ("gpushare-training", "enforce"): ["KILL", "SYS_PTRACE"],
    }
    found = {}
    for daemon_set, pod in pods(MODES).items():
        assert pod["securityContext"] == {
            "appArmorProfile": {"type": "Unconfined"},
            "seLinuxOptions": {"type": "spc_t"},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        for name, container in containers_of(pod).items():
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            if not security.get("privileged"):
                assert security["allowPrivilegeEscalation"] is False
                assert security["capabilities"]["drop"] == ["ALL"]
                # Beside allowPrivilegeEscalation: false the API server refuses CAP_SYS_ADMIN, and takes SYS_ADMIN.
                found[daemon_set, name] = security["capabilities"]["add"]
    assert found == expected


def test_only_required_host_paths_are_mounted(pods) -> None:
    for each in BUNDLES:
        for name, pod in pods(each).items():
            paths = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
            mps = {"/run/nvidia/mps", "/run/nvidia/mps/shm"} if each.values["pools"].get(name[9:], {}).get("mps") else set()
            root = each.values["kubeletRoot"]
            assert paths == {"/dev/null", "/var/lib/gpushare", root} | mps


def test_configured_kubelet_folder_is_mounted_where_the_runtime_looks(pods) -> None:
    pod = pods(DEVICE_PLUGIN)["gpushare-only"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "kubelet"]
    assert volume["hostPath"]["path"] == "/var/lib/k0s/kubelet"
    for container in containers_of(pod).values():
        [mount] = [one for one in container["volumeMounts"] if one["name"] == "kubelet"]
        assert Path(mount["mountPath"]) == FOLDER == DEVICES.parent.parent


def test_waiting_pod_does_not_block_the_daemonset_update(objects) -> None:
    for each in BUNDLES:
        for (kind, *_), item in objects(each).items():
            if kind == "DaemonSet":
                assert item["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "100%"}


def test_the_metrics_port_is_for_the_platforms_namespaces_and_those_that_are_named(objects) -> None:
    spec = objects(DEVICE_PLUGIN)["NetworkPolicy", "gpu-system", "gpushare-metrics"]["spec"]
    [rule] = spec["ingress"]
    [own, *others] = rule["from"]
    assert own["namespaceSelector"]["matchExpressions"][0]["values"] == ["gpu-system", "kube-system"]
    assert others == DEVICE_PLUGIN.values["networkPolicy"]["from"]
    [enforce] = objects(DEVICE_PLUGIN)["DaemonSet", "gpu-system", "gpushare-only"]["spec"]["template"]["spec"]["containers"]
    assert [port["port"] for port in rule["ports"]] == [port["containerPort"] for port in enforce["ports"]]
    assert not [key for key in objects(EXISTING) if key[0] == "NetworkPolicy"]


def test_platform_namespaces_of_the_intent_may_read_metrics(objects) -> None:
    named = bundle("named", {"only": pool("exclusive")}, admission=admission(platformNamespaces=["monitoring", "kube-system"]))
    spec = objects(named)["NetworkPolicy", "gpu-system", "gpushare-metrics"]["spec"]
    values = spec["ingress"][0]["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"]
    assert values == ["gpu-system", "kube-system", "monitoring"]


def test_all_gpus_are_requested_by_variable_and_by_mount(pods) -> None:
    for pod in pods(MODES).values():
        for container in containers_of(pod).values():
            assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in container["env"]
            assert "/var/run/nvidia-container-devices/all" in {mount["mountPath"] for mount in container["volumeMounts"]}
    volume = {"name": "all-gpus", "hostPath": {"path": "/dev/null", "type": "CharDevice"}}
    assert all(volume in pod["volumes"] for pod in pods(MODES).values())


def test_the_mps_folder_and_program_are_there_in_mps_pools_alone(pods) -> None:
    for name, pod in pods(MODES).items():
        for container in containers_of(pod).values():
            paths = {mount["mountPath"] for mount in container["volumeMounts"]}
            values = {variable["name"]: variable.get("value") for variable in container["env"]}
            assert ({"/run/nvidia/mps", "/dev/shm"} <= paths) is (name == "gpushare-serving")
            assert values["NVIDIA_DRIVER_CAPABILITIES"] == ("compute,utility" if name == "gpushare-serving" else "utility")


def test_pods_of_the_runtime_tolerate_whatever_quarantines_tenants(pods) -> None:
    for each in BUNDLES:
        assert [pod["tolerations"] for pod in pods(each).values()] == [[{"operator": "Exists"}]] * len(pods(each))


def terms_of(pod: Object) -> list[Object]:
    terms: list[Object] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return terms


def matches(term: Object, labels: dict[str, str], name: str) -> bool:
    """Node affinity as Kubernetes judges it, for the operators in use."""

    def holds(requirement: Object, facts: dict[str, str]) -> bool:
        value = facts.get(requirement["key"])
        match requirement["operator"]:
            case "In":
                return value in requirement["values"]
            case "NotIn":
                return value not in requirement["values"]
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        raise AssertionError(requirement)

    return all(holds(part, labels) for part in term.get("matchExpressions", [])) and all(
        holds(part, {"metadata.name": name}) for part in term.get("matchFields", [])
    )


def runs_on(pod: Object, labels: dict[str, str], name: str = "some-node") -> bool:
    return any(matches(term, labels, name) for term in terms_of(pod))


def assert_every_pod_runs(found: dict[str, Object], paused: dict[str, str], runs: bool) -> None:
    assert runs_on(found["gpushare-dense"], {"example.org/gpu": "mig", **paused}) is runs
    assert runs_on(found["gpushare-training"], paused, name="gpu-01") is runs
    assert runs_on(found["gpushare-release"], {"gpushare.dev/pool": "former", **paused}) is runs


@pytest.mark.parametrize(
    ("client", "runs"),
    [
        (None, True),
        ("true", True),
        ("false", False),
        ("paused-for-driver-upgrade", False),
        ("paused-for-mig-change", False),
        ("paused-for-mig-change_paused-for-driver-upgrade", False),
    ],
)
def test_operator_can_remove_our_pods_for_a_driver_upgrade(client: str | None, runs: bool, pods) -> None:
    assert_every_pod_runs(pods(MODES), {} if client is None else {"nvidia.com/gpu.deploy.client": client}, runs)


@pytest.mark.failure_case(95)
@pytest.mark.parametrize(
    ("value", "runs"),
    [
        (None, True),
        ("true", True),
        ("false", True),
        ("paused-for-driver-upgrade", False),
    ],
)
def test_older_driver_manager_removes_our_pods_with_its_validator(
    value: str | None,
    runs: bool,
    pods,
) -> None:
    """Operators before 26.7. An administrator who does without the validator keeps us."""
    assert_every_pod_runs(pods(MODES), {} if value is None else {"nvidia.com/gpu.deploy.operator-validator": value}, runs)


@pytest.mark.failure_case(95)
def test_node_selector_lets_the_driver_manager_find_our_pods(pods) -> None:
    """By a key of `nodeSelector` alone: k8s-driver-manager reads no affinity. What releases a node comes without the label."""
    found = pods(HOSTLESS)
    assert found["gpushare-only"]["nodeSelector"] == {"nvidia.com/gpu.deploy.client": "true"}
    assert "nodeSelector" not in found["gpushare-release"]
    assert not any("nodeSelector" in pod for pod in pods(MODES).values())


def test_plugin_configmaps_are_in_the_plugins_namespace(objects) -> None:
    def where(bundle: Bundle) -> dict[str, str]:
        return {name: namespace for kind, namespace, name in objects(bundle) if kind == "ConfigMap" and "policy" not in name}

    assert where(MIG_MANAGER) == {"gpushare-profiles": "1e3", "gpushare-mig-parted": "1e3", "gpushare-tenancy": "gpu-system"}
    assert where(ONE) == {"gpushare-profiles": "gpu-system", "gpushare-tenancy": "gpu-system"}


def test_node_affinity_is_unchanged_without_the_operator(pods) -> None:
    away = {"key": "gpushare.dev/runtime", "operator": "NotIn", "values": ["away"]}
    terms = DEVICE_PLUGIN.values["pools"]["only"]["terms"]
    wanted = [{**term, "matchExpressions": [*term["matchExpressions"], away]} for term in terms]
    assert terms_of(pods(DEVICE_PLUGIN)["gpushare-only"]) == wanted


def test_only_nodes_of_deleted_pools_are_released(pods) -> None:
    release = pods(MODES)["gpushare-release"]
    assert runs_on(release, {"gpushare.dev/pool": "former"})
    assert not runs_on(release, {"gpushare.dev/pool": "training"})
    assert not runs_on(release, {})


def rights(role: Object) -> set[tuple[str, str]]:
    return {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def test_node_runtime_has_least_privilege(objects) -> None:
    found = objects(MIG_MANAGER)
    assert rights(found["ClusterRole", "", "gpushare-node"]) == {
        ("nodes", "get"),
        ("nodes", "list"),
        ("nodes", "watch"),
        ("nodes", "patch"),
        ("nodes/status", "patch"),
        ("pods", "list"),
        ("pods", "watch"),
        ("resourceslices", "get"),
        ("resourceslices", "list"),
        ("resourceslices", "watch"),
        ("events", "create"),
        ("events", "patch"),
    }
    assert rights(found["Role", "gpu-system", "gpushare-node"]) == {
        ("pods", "delete"),
        ("pods", "get"),
        ("daemonsets", "get"),
        ("daemonsets/status", "patch"),
        ("leases", "create"),
        ("leases", "delete"),
        ("leases", "get"),
        ("leases", "list"),
        ("leases", "update"),
    }


def test_node_runtime_deletes_slices_and_reads_claims_only_where_a_driver_serves_or_served_pools(objects) -> None:
    claims = replace(MIG_MANAGER, name="claims", values=MIG_MANAGER.values | {"hasClaims": True})
    without, with_claims = (rights(objects(each)["ClusterRole", "", "gpushare-node"]) for each in (MIG_MANAGER, claims))
    assert with_claims - without == {
        ("resourceslices", "delete"),
        ("resourceclaims", "get"),
        ("deviceclasses", "get"),
    }


DRA = """\
classes: {gpushare-notebooks: {selectors: [{cel: {expression: "true"}}]}}
templates: {gpushare-notebooks.share: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpushare-notebooks}}]}}}
namespaces: [course, lab]
tests: [gpushare-notebooks]
"""


def with_claims(each: Bundle, text: str = DRA) -> Bundle:
    values = each.values | {"hasClaims": True}
    return replace(each, name="claims", values=values, files=each.files | {"files/dra/notebooks.yaml": text})


def test_claim_templates_are_made_again_by_every_action_of_helm_that_may_change_them(objects) -> None:
    """Their specification cannot be changed."""
    found = objects(with_claims(MIG_MANAGER))
    for namespace in ("course", "lab"):
        one = found["ResourceClaimTemplate", namespace, "gpushare-notebooks.share"]
        assert one["metadata"]["annotations"] == {
            "helm.sh/hook": "pre-install,pre-upgrade,pre-rollback",
            "helm.sh/hook-delete-policy": "before-hook-creation",
        }
        assert one["spec"]["spec"]["devices"]["requests"][0]["exactly"] == {"deviceClassName": "gpushare-notebooks"}


@pytest.mark.parametrize(
    ("changed", "is_shown"),
    [(DRA, False), (DRA.replace("notebooks.share", "notebooks.large"), True), (DRA.replace("lab", "atlas"), True)],
)
def test_changed_templates_change_an_object_that_argo_cd_compares(changed: str, is_shown: bool, objects) -> None:
    """It compares no hooks, and syncs only what differs."""
    own, other = (objects(with_claims(MIG_MANAGER, text)) for text in (DRA, changed))
    key = ("DeviceClass", "", "gpushare-notebooks")
    assert "helm.sh/hook" not in own[key]["metadata"]["annotations"]
    assert (own[key] != other[key]) == is_shown


def test_uninstall_deletes_claim_templates_only_where_a_pool_has_or_had_some(objects) -> None:
    """Hooks are no part of the release: Helm leaves them."""
    for each, has in ((MIG_MANAGER, False), (with_claims(MIG_MANAGER), True)):
        found = objects(each)
        job = found["Job", "gpu-system", "gpushare-uninstall"]["spec"]["template"]["spec"]["containers"][0]
        assert ("--claim-templates" in job["command"]) == has
        may = rights(found["ClusterRole", "", "gpushare-uninstall"])
        assert {one for one in may if one[0] == "resourceclaimtemplates"} == (
            {("resourceclaimtemplates", "delete"), ("resourceclaimtemplates", "list")} if has else set()
        )


def test_pods_may_be_evicted_only_if_a_pool_configures_it(objects) -> None:
    more = {("pods/eviction", "create"), ("pods", "delete"), ("pods/status", "patch")}
    assert more <= rights(objects(MODES)["ClusterRole", "", "gpushare-node"])
    assert not more & rights(objects(MIG_MANAGER)["ClusterRole", "", "gpushare-node"])
    for each, evicts in ((MODES, "true"), (MIG_MANAGER, "false")):
        fence = objects(each)["ValidatingAdmissionPolicy", "", "gpushare-fence"]["spec"]
        given = {one["name"]: one["expression"] for one in fence["variables"]}
        assert given["evicts"] == evicts
    variables = objects(MODES)["ValidatingAdmissionPolicy", "", "gpushare-fence"]["spec"]["variables"]
    assert {"name": "platform", "expression": '["gpu-system","kube-system","monitoring"]'} in variables


def test_pods_may_be_told_that_they_move_only_where_a_pool_moves_them(objects) -> None:
    for each in BUNDLES:
        found = objects(each)
        has_right = ("pods/status", "patch") in rights(found["ClusterRole", "", "gpushare-node"])
        fence = found["ValidatingAdmissionPolicy", "", "gpushare-fence"]["spec"]
        given = {one["name"]: one["expression"] for one in fence["variables"]}
        assert given["evicts"] == str(has_right).lower()
        judged = [one["operations"] for one in fence["matchConstraints"]["resourceRules"] if "pods/status" in one["resources"]]
        assert judged == [["UPDATE"]]


def test_quotas_use_the_api_servers_canonical_numbers(objects) -> None:
    found = objects(MODES)
    assert found["ResourceQuota", "atlas", "gpushare"]["spec"] == {
        "hard": {"requests.nvidia.com/gpu.shared": "8", "requests.nvidia.com/mig-1g.5gb": "0"}
    }
    assert found["ResourceQuota", "cms", "gpushare"]["spec"] == {"hard": {"requests.nvidia.com/gpu": "12345678"}}
    assert found["ResourceQuota", "lhcb", "gpushare"]["spec"] == {
        "hard": {
            "requests.nvidia.com/gpu": "2k",
            "requests.nvidia.com/gpu.shared": "1500",
            "requests.nvidia.com/mig-1g.5gb": "9P",
        }
    }


def test_the_namespace_is_allowed_the_priority_of_our_pods(objects, pods) -> None:
    for each in (MODES, DEVICE_PLUGIN):
        spec = objects(each)["ResourceQuota", "gpu-system", "gpushare-critical-pods"]["spec"]
        [scope] = spec["scopeSelector"]["matchExpressions"]
        assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
        assert {pod["priorityClassName"] for pod in pods(each).values()} <= set(scope["values"])


def test_the_plugins_namespace_is_allowed_that_priority_too(objects) -> None:
    elsewhere = bundle("elsewhere", MODES.values["pools"], pluginNamespace="nvidia")
    quotas = {namespace for kind, namespace, name in objects(elsewhere) if name == "gpushare-critical-pods"}
    assert quotas == {"gpu-system", "nvidia"}


def test_a_changed_policy_rolls_the_pods_of_its_pool_alone(objects) -> None:
    text = MODES.files["files/policies/hpc.yaml"]
    changed = bundle("changed", MODES.values["pools"], policies={"hpc": f"{text}# changed\n"})
    before, after = objects(MODES), objects(changed)
    sets = [key for key in before if key[0] == "DaemonSet"]
    rolled = {key[2] for key in sets if before[key]["spec"]["template"] != after[key]["spec"]["template"]}
    assert rolled == {"gpushare-hpc"}


def test_pool_manifests_are_independent_of_other_pools(objects) -> None:
    alone = objects(bundle("alone", {"hpc": pool("exclusive")}))
    assert alone["DaemonSet", "gpu-system", "gpushare-hpc"] == objects(MODES)["DaemonSet", "gpu-system", "gpushare-hpc"]
