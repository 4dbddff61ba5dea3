"""Pools of NVIDIA's DRA driver on a running cluster: slices, classes and claims in `status`, `drift` and `explain`.

Slices, claims and pods have the shapes that NVIDIA's driver and Kubernetes 1.36 gave them (tests/node/backends/dra/files).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.live import dra_objects
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.compiler.live.clusters import INTENT, LiveCluster
from tests.compiler.live.conftest import Ask
from tests.compiler.live.rights import allowed_by
from tests.support.fake_api.server import ApiServer

DRA = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: live}
spec:
  kubernetes: "1.36"
  platform:
    dra: {via: chart, version: "0.5.0", shares: memory}
  pools:
    notebooks:
      backend: dra
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}, expected: 2}
      gpusPerNode: 2
      sharing: {mode: time-slicing, replicas: 4}
      memory: {cap: even}
      sizes: {large: 7680Mi}
    training:
      backend: dra
      requests: both
      namespaces: [physics]
      card: a100-pcie-40gb
      nodes: {names: [a100-1]}
      gpusPerNode: 1
      sharing: {mode: mig, layout: {2g.10gb: 2, 1g.5gb: 3}}
  quotas:
    team: {notebooks: 6}
"""
NOTEBOOKS, LARGE = "gpushare-notebooks", "gpushare-training-2g-10gb"
LIMIT = "nvidia.com/mig-2g.10gb"
VALIDATING = "validatingadmissionpolicies"


def device(name: str, product: str = "Tesla T4", memory: str = "15Gi", *, mig: str = "", shared: bool = True) -> dict[str, Any]:
    """A device as the driver publishes it with consumableShares memory."""
    texts = {
        "type": "mig" if mig else "gpu",
        "productName": product,
        "uuid": f"GPU-{name}",
        **({"profile": mig} if mig else {}),
    }
    policy = {"requestPolicy": {"default": memory, "validRange": {"max": memory, "min": "1Mi", "step": "1Mi"}}}
    return {
        "name": name,
        "attributes": {key: {"string": text} for key, text in texts.items()},
        "capacity": {"memory": {"value": memory, **(policy if shared else {})}},
        **({"allowMultipleAllocations": True} if shared else {}),
    }


def add_slice(api: ApiServer, node: str, devices: list[Any], *, name: str = "", generation: int = 1, count: int = 1) -> None:
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": devices}
    api.add("resourceslices", name or f"00000-gpu.nvidia.com-{node}", {"spec": spec})


def add_claim(  # noqa: PLR0917 - the parts of a claim
    api: ApiServer,
    namespace: str,
    pod: str,
    device_class: str = NOTEBOOKS,
    memory: str = "3840Mi",
    on: tuple[str, str] | None = None,
    *,
    uid: str = "",
    consumed: str = "",
) -> str:
    """A claim that was made for a pod; `on` is the node and device that it has. `consumed`: of memory, if it asks for none."""
    capacity = {"capacity": {"requests": {"memory": memory}}} if memory else {}
    exactly = {"allocationMode": "ExactCount", "count": 1, "deviceClassName": device_class, **capacity}
    status: dict[str, Any] = {}
    if on is not None:
        takes = {"consumedCapacity": {"memory": memory or consumed}, "shareID": "1"} if memory or consumed else {}
        result = {"device": on[1], "driver": "gpu.nvidia.com", "pool": on[0], "request": "gpu", **takes}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"name": pod, "resource": "pods", "uid": uid or f"uid-{pod}"}],
        }
    owner = [{"apiVersion": "v1", "kind": "Pod", "controller": True, "name": pod, "uid": uid or f"uid-{pod}"}]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    name = f"{pod}-gpu-abcde"
    api.add(
        "resourceclaims", name, {"metadata": {"ownerReferences": owner}, "spec": spec, "status": status}, namespace=namespace
    )
    return name


def add_pod(api: ApiServer, namespace: str, name: str, node: str = "", template: str = "gpushare-notebooks.share") -> None:
    """A pod that claims a device by a template; its claim, if there is one, is that of `add_claim`."""
    api.add_pod(name, namespace=namespace, node=node, uid=f"uid-{name}", phase="Running" if node else "Pending")
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    statuses = [{"name": "gpu", "resourceClaimName": f"{name}-gpu-abcde"}]

    def change(pod: dict[str, Any]) -> None:
        pod["spec"].update(resourceClaims=claims, nodeSelector={"gpushare.dev/pool": "notebooks"})
        pod["status"].update(resourceClaimStatuses=statuses)

    api.edit("pods", name, change, namespace=namespace)


def use(api: ApiServer, pod: str, node: str, device: str, memory: str = "3840Mi") -> None:
    """A running pod that has so much of a device."""
    namespace, _, name = pod.partition("/")
    add_pod(api, namespace, name, node)
    add_claim(api, namespace, name, memory=memory, on=(node, device))


MIG = [
    *(device(f"gpu-0-mig-2g10gb-14-{at}", "NVIDIA A100-PCIE-40GB", "9856Mi", mig="2g.10gb") for at in (0, 2)),
    *(device(f"gpu-0-mig-1g5gb-19-{at}", "NVIDIA A100-PCIE-40GB", "4864Mi", mig="1g.5gb") for at in (4, 5, 6)),
]


@pytest.fixture
def cluster(api: ApiServer) -> LiveCluster:
    """Three nodes as planned; on t4-1 a pod with two shares and one with a share."""
    found = LiveCluster(api, DRA)
    for node in ("t4-1", "t4-2"):
        found.add_node(node, "notebooks")
        add_slice(api, node, [device("gpu-0"), device("gpu-1")])
    found.add_node("a100-1", "training")
    add_slice(api, "a100-1", MIG)
    found.add_release()
    use(api, "team/large", "t4-1", "gpu-0", "7680Mi")
    use(api, "team/lab-0", "t4-1", "gpu-0")
    return found


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def words(text: str) -> str:
    return " ".join(text.split())


# status


def test_shares_of_classes_are_counted_from_slices_and_claims(cluster: LiveCluster, ask: Ask) -> None:
    done = ask("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert ["notebooks", "time-slicing", "2/2", NOTEBOOKS, "16", "16", "3", "13"] in rows(done.stdout)
    assert ["gpushare-training-1g-5gb", "3", "3", "0", "3"] in [row[-5:] for row in rows(done.stdout)]
    assert ["t4-1", "notebooks", "dra", f"{NOTEBOOKS}:", "2", "2", "as", "planned"] in rows(done.stdout)
    assert "2 claims have devices, 0 wait" in done.stdout
    assert ["notebooks", "team/large", "t4-1", f"{NOTEBOOKS}:", "2", "-", "7448Mi"] in rows(done.stdout)


ON_DEMAND = DRA.replace("layout: {2g.10gb: 2, 1g.5gb: 3}", "layout: on-demand, profiles: [2g.10gb, 1g.5gb]")


@pytest.mark.parametrize(("left_out", "problem"), [(0, "as planned"), (1, "gpushare-training-1g-5gb: 6 instead of 7")])
def test_places_of_profiles_that_no_class_has_are_no_difference(api: ApiServer, ask: Ask, left_out: int, problem: str) -> None:
    """The driver lists all places of a card, and the counters that they share in a slice of their own."""
    found, product = LiveCluster(api, ON_DEMAND), "NVIDIA A100-PCIE-40GB"
    found.add_node("a100-1", "training")
    places = [("2g.10gb", 14, (0, 2, 4)), ("1g.5gb", 19, range(7 - left_out)), ("3g.20gb", 9, (0, 4))]
    devices = [
        device(f"gpu-0-mig-{name.replace('.', '')}-{number}-{start}", product, "9856Mi", mig=name)
        for name, number, starts in places
        for start in starts
    ]
    add_slice(api, "a100-1", devices, count=2)
    add_slice(api, "a100-1", [], name="counters", count=2)
    found.add_release()
    use(api, "physics/one", "a100-1", "gpu-0-mig-1g5gb-19-0", "")
    done = ask("status")
    assert problem in words(done.stdout)
    assert ["gpushare-training-1g-5gb", "7", str(7 - left_out), "1", "?"] in [row[-5:] for row in rows(done.stdout)]


def test_document_with_slices_is_valid_under_its_schema(cluster: LiveCluster, ask: Ask) -> None:
    document = json.loads(ask("status", "--format", "json").stdout)
    assert schema.accepts(schema.load("status.v1"), document)
    assert document["pools"]["notebooks"]["backend"] == "dra"
    node = document["pools"]["notebooks"]["nodes"][0]
    assert (node["ready"], node["slices"]) == (True, {"devices": {NOTEBOOKS: 2}, "problem": None, "claims": 2})
    assert document["claims"] == {"allocated": 2, "pending": 0, "withoutPods": [], "sharedNames": {}}
    assert "Nodes of NVIDIA" in ask("status", "--html").stdout


def test_a_cluster_of_device_plugins_is_not_asked_for_resources_of_dra(live: LiveCluster, ask: Ask) -> None:
    live.api.forget_requests()
    document = json.loads(ask("status", "--format", "json").stdout)
    assert not [path for _, path in live.api.requests if "resource.k8s.io" in path]
    assert (document["claims"], document["pools"]["notebooks"]["backend"]) == (None, "device-plugin")


def replace_slice(api: ApiServer, devices: list[Any], **pool: Any) -> None:
    api.remove("resourceslices", "00000-gpu.nvidia.com-t4-2")
    add_slice(api, "t4-2", devices, **pool)


COUNTED = {**device("gpu-0"), "capacity": {"memory": {"value": "15Gi"}, "shares": {"value": "4"}}}
WRONG: list[tuple[Callable[[ApiServer], object], str, str]] = [
    (lambda api: api.remove("resourceslices", "00000-gpu.nvidia.com-t4-2"), "WaitingForSlices", "published no ResourceSlice"),
    (lambda api: replace_slice(api, [device("gpu-0")]), "WrongSlices", f"{NOTEBOOKS}: 1 instead of 2"),
    (lambda api: replace_slice(api, [device("gpu-0"), device("gpu-1")], count=2), "WrongSlices", "pool t4-2 has 1 of 2 slices"),
    (lambda api: replace_slice(api, [device("gpu-0"), device("gpu-0")]), "WrongSlices", "gpu-0 listed more than once"),
    (lambda api: replace_slice(api, [device("gpu-0", shared=False), device("gpu-1")]), "WrongSlices", "share gpu-0 by nothing"),
    (lambda api: replace_slice(api, [COUNTED, device("gpu-1")]), "WrongSlices", "gpu-0 by 4 shares, instead of by memory"),
    (lambda api: replace_slice(api, [device("gpu-0", "NVIDIA L4"), device("gpu-1")]), "WrongSlices", "the node has NVIDIA L4"),
    (lambda api: replace_slice(api, MIG[:2]), "WrongSlices", "devices of mig 2g.10gb: 2 instead of 0"),
    (
        lambda api: api.edit("nodes", "t4-2", lambda one: one["status"]["allocatable"].update({"nvidia.com/gpu": "2"})),
        "BackEndRunning",
        "2 nvidia.com/gpu by a device plugin and has ResourceSlices of gpu.nvidia.com: each GPU can be given twice",
    ),
]


@pytest.mark.parametrize(("change", "reason", "message"), WRONG, ids=[message for _, _, message in WRONG])
def test_node_whose_slices_are_not_as_planned_is_not_ready(
    cluster: LiveCluster, ask: Ask, change: Callable[[ApiServer], object], reason: str, message: str
) -> None:
    change(cluster.api)
    document = json.loads(ask("status", "t4-2", "--format", "json").stdout)
    [node] = document["pools"]["notebooks"]["nodes"]
    assert (node["ready"], node["reason"]) == (False, reason)
    assert message in node["message"]


def test_newest_generation_of_slices_counts(cluster: LiveCluster, ask: Ask) -> None:
    add_slice(cluster.api, "t4-2", [device("gpu-7")], name="older", generation=0)
    assert "t4-2  notebooks" not in ask("status").stdout.split("DRA NODE")[0]


def test_incomplete_slices_offer_nothing(cluster: LiveCluster, ask: Ask) -> None:
    replace_slice(cluster.api, [device("gpu-0"), device("gpu-1")], count=2)
    shares = json.loads(ask("status", "--format", "json").stdout)["pools"]["notebooks"]["shares"][NOTEBOOKS]
    assert shares == {"wanted": 16, "offered": 8, "used": 3, "free": 5}


def test_slices_on_a_node_of_a_device_plugin_are_reported(api: ApiServer, ask: Ask) -> None:
    cluster = LiveCluster(api, INTENT)
    cluster.add_node("t4-1", "notebooks", labels={"gpushare.dev/backend": "none"})
    add_slice(api, "t4-1", [device("gpu-0")])
    said = ask("status").stdout
    assert "each GPU can be given twice" in said
    assert "in a pool of another back end" in said


def test_claims_whose_pods_are_gone_are_named(cluster: LiveCluster, ask: Ask) -> None:
    """Also that of a pod of the same name that is another one now."""
    add_claim(cluster.api, "team", "gone", on=("t4-2", "gpu-0"))
    add_pod(cluster.api, "team", "again", "t4-2")
    add_claim(cluster.api, "team", "again", on=("t4-2", "gpu-1"), uid="former")
    document = json.loads(ask("status", "--format", "json").stdout)
    assert [one["name"] for one in document["claims"]["withoutPods"]] == ["again-gpu-abcde", "gone-gpu-abcde"]
    assert ["team/gone-gpu-abcde", "gpu-0", "of", "t4-2", "gone"] in rows(ask("status").stdout)


def test_two_classes_of_one_name_are_reported(cluster: LiveCluster, ask: Ask) -> None:
    cluster.api.add("deviceclasses", "other", {"spec": {"extendedResourceName": LIMIT}})
    document = json.loads(ask("status", "--format", "json").stdout)
    assert document["claims"]["sharedNames"] == {LIMIT: [LARGE, "other"]}
    assert [LIMIT, f"{LARGE},", "other"] in rows(ask("status").stdout)


@pytest.mark.parametrize(("plural", "status"), [("resourceslices", 403), ("resourceclaims", 403), ("resourceslices", 404)])
def test_what_cannot_be_read_is_said_and_its_numbers_are_unknown(
    cluster: LiveCluster, ask: Ask, plural: str, status: int
) -> None:
    cluster.api.fail(f"/{plural}", status)
    done = ask("status")
    assert f"could not read {plural}: {status}" in done.stderr
    document = json.loads(ask("status", "--format", "json").stdout)
    shares = document["pools"]["notebooks"]["shares"][NOTEBOOKS]
    assert (shares["used"], shares["free"]) == (None, None)
    assert shares["offered"] == (None if plural == "resourceslices" else 16)
    assert document["pools"]["notebooks"]["ready"] == 2


def test_an_api_server_without_dra_is_not_a_cluster_without_claims(cluster: LiveCluster, ask: Ask) -> None:
    cluster.api.fail("/apis/resource.k8s.io/", 404)
    done = ask("status")
    assert done.stderr.count("this server does not have that resource") == 3
    assert json.loads(ask("status", "--format", "json").stdout)["claims"]["withoutPods"] is None


@pytest.mark.parametrize("command", [["status"], ["explain", "team/lab-0"], ["drift", "bundle"]], ids=" ".join)
def test_printed_rights_suffice_for_dra(cluster: LiveCluster, ask: Ask, tmp_path: Path, command: list[str]) -> None:
    cluster.write(tmp_path)
    cluster.api.allows = allowed_by(list(yaml.safe_load_all(gpushare("rbac", "--helm-values").stdout)))
    done = ask(*command)
    assert (done.returncode, done.stderr) == (0, "")


def test_hostile_objects_of_tenants_do_no_harm(cluster: LiveCluster, ask: Ask) -> None:
    """Any tenant can write a claim, any pod a status; names of their devices need not exist."""
    odd: list[dict[str, Any]] = [
        {"spec": {"devices": {"requests": [{"name": [], "exactly": {"deviceClassName": {}, "count": True}}]}}},
        {"spec": {"devices": {"requests": "x"}}, "status": {"allocation": {"devices": {"results": [{"driver": 1}, None]}}}},
        {"spec": None, "status": {"allocation": [], "reservedFor": {"a": 1}}},
        {
            "spec": {
                "devices": {"requests": [{"exactly": {"deviceClassName": "gpushare-\x1b[2Jx", "capacity": {"requests": 7}}}]}
            },
            "status": {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "device": "\x1b[2J", "pool": []}]}}},
        },
    ]
    for number, thing in enumerate(odd):
        cluster.api.add("resourceclaims", f"odd-{number}", thing, namespace="team")
    cluster.api.add("deviceclasses", "odd", {"spec": {"selectors": [{"cel": {"expression": "x" * 100_000}}, 3]}})
    add_slice(
        cluster.api,
        "t4-9",
        ["x", {"name": 3, "attributes": [], "capacity": {"memory": 9, "shares": {"value": "-1"}}}],
        name="odd",
    )
    cluster.api.edit(
        "pods", "lab-0", lambda one: one["status"].update(resourceClaimStatuses=[{"name": []}, 7]), namespace="team"
    )
    for command in (["status"], ["status", "--html"], ["explain", "team/lab-0"], ["explain", "claim/odd-3", "-n", "team"]):
        done = ask(*command)
        assert (done.returncode, "Traceback" in done.stderr, "\x1b[2J" in done.stdout) == (0, False, False), done.stderr


# drift


def test_an_installed_bundle_of_dra_has_no_drift(cluster: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    done = ask("drift", cluster.write(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no difference\n", "")


def edit_template(change: Callable[[dict[str, Any]], object]) -> Callable[[ApiServer], object]:
    def edit(api: ApiServer) -> None:
        name = "gpushare-notebooks.large"
        api.edit("resourceclaimtemplates", name, lambda one: change(one["spec"]["spec"]["devices"]), namespace="team")

    return edit


def test_what_the_server_writes_otherwise_is_no_difference(cluster: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    def change(devices: dict[str, Any]) -> None:
        asked = devices["requests"][0]["exactly"]
        asked.update(allocationMode="ExactCount", count=1, capacity={"requests": {"memory": "7.5Gi"}})

    def add_defaults(policy: dict[str, Any]) -> None:
        constraints = policy["spec"]["matchConstraints"]
        constraints.update(matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
        constraints["resourceRules"][0]["scope"] = "*"

    def add_bound_defaults(binding: dict[str, Any]) -> None:
        binding["spec"]["matchResources"].update(matchPolicy="Equivalent", objectSelector={})

    edit_template(change)(cluster.api)
    cluster.api.edit("validatingadmissionpolicybindings", "gpushare-claims", add_bound_defaults)
    cluster.api.edit(VALIDATING, "gpushare-claims", add_defaults)
    assert ask("drift", cluster.write(tmp_path)).stdout == "no difference\n"


EDITED: list[tuple[Callable[[ApiServer], object], str, str, str]] = [
    (lambda api: api.remove("deviceclasses", NOTEBOOKS), "object", f"DeviceClass {NOTEBOOKS}", "missing"),
    (
        lambda api: api.edit("deviceclasses", LARGE, lambda one: one["spec"].pop("extendedResourceName")),
        "object",
        f"DeviceClass {LARGE}",
        "extendedResourceName: none",
    ),
    (
        lambda api: api.edit("deviceclasses", LARGE, lambda one: one["spec"].update(config=[{"opaque": {}}])),
        "object",
        f"DeviceClass {LARGE}",
        "config: [{'opaque': {}}]",
    ),
    (
        lambda api: api.add("deviceclasses", "x", {"metadata": {"labels": {"app.kubernetes.io/name": "gpushare"}}, "spec": {}}),
        "object",
        "DeviceClass x",
        "present",
    ),
    (
        edit_template(lambda one: one["requests"][0]["exactly"]["capacity"]["requests"].update(memory="15Gi")),
        "object",
        "ResourceClaimTemplate team/gpushare-notebooks.large",
        "devices.requests.0.exactly.capacity.requests.memory: 15Gi",
    ),
    (
        edit_template(lambda one: one["requests"][0]["exactly"].update(count=2)),
        "object",
        "ResourceClaimTemplate team/gpushare-notebooks.large",
        "devices.requests.0.exactly.count: 2",
    ),
    (lambda api: replace_slice(api, [device("gpu-0")]), "slices", "node t4-2", f"{NOTEBOOKS}: 1 instead of 2"),
    (
        lambda api: api.edit(
            VALIDATING, "gpushare-slices", lambda one: one["spec"]["validations"][0].update(expression="true")
        ),
        "object",
        "ValidatingAdmissionPolicy gpushare-slices",
        "other validations.0.expression",
    ),
    (
        lambda api: api.edit(
            "validatingadmissionpolicybindings", "gpushare-claims", lambda one: one["spec"].update(validationActions=["Audit"])
        ),
        "object",
        "ValidatingAdmissionPolicyBinding gpushare-claims",
        "Audit",
    ),
    (
        lambda api: api.edit(
            "validatingadmissionpolicybindings",
            "gpushare-claims",
            lambda one: one["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0]["values"].append("team"),
        ),
        "object",
        "ValidatingAdmissionPolicyBinding gpushare-claims",
        "other matchResources.namespaceSelector.matchExpressions.0.values",
    ),
    (
        lambda api: api.edit(
            "mutatingadmissionpolicybindings", "gpushare-pool-of-claims", lambda one: one["spec"].update(policyName="other")
        ),
        "object",
        "MutatingAdmissionPolicyBinding gpushare-pool-of-claims",
        "other policyName",
    ),
    (
        lambda api: api.remove("mutatingadmissionpolicybindings", "gpushare-pool-of-claims"),
        "object",
        "MutatingAdmissionPolicyBinding gpushare-pool-of-claims",
        "missing",
    ),
    (
        lambda api: api.edit("nodes", "t4-2", lambda one: one["metadata"]["labels"].update({"gpushare.dev/backend": "none"})),
        "node",
        "node t4-2, label gpushare.dev/backend",
        "none",
    ),
]


@pytest.mark.parametrize(("change", "kind", "subject", "actual"), EDITED, ids=[f"{one[2]} {one[3]}" for one in EDITED])
def test_edited_objects_and_slices_are_differences(  # noqa: PLR0917 - fixtures, and the columns of a table
    cluster: LiveCluster,
    ask: Ask,
    tmp_path: Path,
    change: Callable[[ApiServer], object],
    kind: str,
    subject: str,
    actual: str,
) -> None:
    change(cluster.api)
    done = ask("drift", cluster.write(tmp_path), "--format", "json")
    found = [(one["kind"], one["subject"], one["actual"]) for one in json.loads(done.stdout)["differences"]]
    assert (done.returncode, found) == (3, [(kind, subject, actual)])


# explain


def waits(api: ApiServer, memory: str = "3840Mi", device_class: str = NOTEBOOKS) -> None:
    add_pod(api, "team", "waits")
    add_claim(api, "team", "waits", device_class, memory)


def test_capacity_that_is_short_is_explained_with_who_has_it(cluster: LiveCluster, ask: Ask) -> None:
    for node, name in (("t4-1", "gpu-1"), ("t4-2", "gpu-0"), ("t4-2", "gpu-1")):
        use(cluster.api, f"physics/{node}-{name}", node, name, "15Gi")
    waits(cluster.api, "7680Mi")
    told = words(ask("explain", "team/waits").stdout)
    assert "No node can serve request gpu of class gpushare-notebooks" in told
    assert (
        "Node t4-1: gpu-0 has 3840Mi of 15360Mi memory left, and 7680Mi are asked: "
        "pod team/lab-0 has 3840Mi and pod team/large has 7680Mi" in told
    )
    assert "t4-2: gpu-0 has 0Mi of 15360Mi memory left, and 7680Mi are asked: pod physics/t4-2-gpu-0 has 15360Mi" in told


def test_claim_that_fits_again_waits_for_the_scheduler(cluster: LiveCluster, ask: Ask) -> None:
    waits(cluster.api)
    told = words(ask("explain", "claim/waits-gpu-abcde", "-n", "team").stdout)
    assert "claim team/waits-gpu-abcde: has no device" in told
    assert "fits now: node t4-1 has room" in told
    assert "after five minutes at the latest" in told


def test_claim_of_another_pod_is_explained(cluster: LiveCluster, ask: Ask) -> None:
    waits(cluster.api)
    add_pod(cluster.api, "team", "second")
    named = [{"name": "gpu", "resourceClaimName": "waits-gpu-abcde"}]
    cluster.api.edit("pods", "second", lambda one: one["spec"].update(resourceClaims=named), namespace="team")
    told = words(ask("explain", "team/second").stdout)
    assert "ResourceClaim team/waits-gpu-abcde was made for pod waits, and admission lets no other pod use it" in told
    assert "was made for pod" not in words(ask("explain", "team/waits").stdout)


def test_nodes_that_take_no_pods_are_explained(cluster: LiveCluster, ask: Ask) -> None:
    cluster.api.edit("nodes", "t4-1", lambda one: one["spec"].update(unschedulable=True))
    cluster.api.edit("nodes", "t4-2", lambda one: one["metadata"]["labels"].pop("gpushare.dev/pool"))
    waits(cluster.api)
    told = words(ask("explain", "team/waits").stdout)
    assert "t4-1: it is cordoned" in told
    assert "t4-2: the pod's nodeSelector wants gpushare.dev/pool=notebooks" in told


def test_missing_class_and_foreign_selectors_are_said(cluster: LiveCluster, ask: Ask) -> None:
    waits(cluster.api, device_class="gpushare-notebook")
    assert "DeviceClass gpushare-notebook of request gpu does not exist" in words(ask("explain", "team/waits").stdout)
    selectors = [{"cel": {"expression": "device.driver == 'gpu.nvidia.com' && true"}}]
    cluster.api.add("deviceclasses", "gpushare-notebook", {"spec": {"selectors": selectors}})
    assert "not of gpushare's form and are not evaluated" in words(ask("explain", "team/waits").stdout)


def test_selector_that_matches_no_device_is_explained(cluster: LiveCluster, ask: Ask) -> None:
    for node in ("t4-1", "t4-2"):
        cluster.api.edit(
            "resourceslices",
            f"00000-gpu.nvidia.com-{node}",
            lambda one: one["spec"].update(devices=[device("gpu-0", "NVIDIA L4")]),
        )
    waits(cluster.api)
    told = words(ask("explain", "team/waits").stdout)
    assert "No device matches DeviceClass gpushare-notebooks (type gpu, productName Tesla T4)" in told
    assert "2 of type gpu, productName NVIDIA L4" in told


def test_class_of_other_namespaces_is_explained(cluster: LiveCluster, ask: Ask) -> None:
    waits(cluster.api, "", LARGE)
    told = words(ask("explain", "team/waits").stdout)
    assert f"DeviceClass {LARGE} belongs to pool training, which is for namespaces physics" in told


def test_claim_that_was_not_made_is_explained_with_the_refusal(cluster: LiveCluster, ask: Ask) -> None:
    add_pod(cluster.api, "team", "waits")
    cluster.api.edit("pods", "waits", lambda one: one["status"].pop("resourceClaimStatuses"), namespace="team")
    cluster.api.add_event(
        "Pod",
        "waits",
        "FailedResourceClaimCreation",
        "PodResourceClaim gpu: ValidatingAdmissionPolicy 'gpushare-claims' denied request: may not use pool x",
        namespace="team",
    )
    told = words(ask("explain", "team/waits").stdout)
    assert "No ResourceClaim has been made for the pod's claim gpu from template gpushare-notebooks.share" in told
    assert "may not use pool x" in told


def test_pod_by_limits_is_explained_and_counted_by_its_claim(cluster: LiveCluster, ask: Ask) -> None:
    """The scheduler makes the claim when it has found a device. One that it made before devices were shared has it whole."""
    for number, at in enumerate((0, 2)):
        name = f"train-{number}"
        cluster.api.add_pod(name, namespace="physics", node="a100-1", limits={LIMIT: 1}, uid=f"uid-{name}")
        on = ("a100-1", f"gpu-0-mig-2g10gb-14-{at}")
        claim = add_claim(cluster.api, "physics", name, LARGE, "", on, consumed="9856Mi" if at else "")
        mapping = {"containerName": "main", "requestName": "gpu", "resourceName": LIMIT}
        status = {"extendedResourceClaimStatus": {"requestMappings": [mapping], "resourceClaimName": claim}}
        cluster.api.edit("pods", name, lambda one, status=status: one["status"].update(status), namespace="physics")  # type: ignore[misc]
    document = json.loads(ask("status", "--format", "json").stdout)
    assert document["pools"]["training"]["shares"][LARGE] == {"wanted": 2, "offered": 2, "used": 2, "free": 0}
    [node] = document["pools"]["training"]["nodes"]
    assert [(one["name"], one["shares"]) for one in node["pods"]] == [("train-0", {LARGE: 1}), ("train-1", {LARGE: 1})]
    cluster.api.add_pod("waits", namespace="physics", limits={LIMIT: 1}, phase="Pending")
    told = words(ask("explain", "physics/waits").stdout)
    assert f"No node can serve request {LIMIT} of class {LARGE}" in told
    assert "gpu-0-mig-2g10gb-14-0 is in use by pod physics/train-0" in told
    assert "gpu-0-mig-2g10gb-14-2 has 0Mi of 9856Mi memory left, and 9856Mi are asked: pod physics/train-1 has 9856Mi" in told
    assert "No node offers" not in told


def test_running_pod_with_a_claim_has_no_problems(cluster: LiveCluster, ask: Ask) -> None:
    told = ask("explain", "team/lab-0").stdout
    assert "claim lab-0-gpu-abcde" in words(told)
    assert "No problems found." in told


# What is recognised of expressions.


@pytest.mark.parametrize(
    ("expression", "selects"),
    [
        ("{type} == 'gpu' && {product} == 'Tesla T4'", "type gpu, productName Tesla T4"),
        (
            "{type} == 'mig' && {profile} == '1g.5gb+me' && {product} in ['A', 'B c']",
            "type mig, profile 1g.5gb+me, productName A or B c",
        ),
        ("{type} == 'mig' && {product} == 'A'", "None"),
        ("{type} == 'gpu' && {profile} == '1g.5gb' && {product} == 'A'", "None"),
        ("{type} == 'gpu' && {product} == 'A' || true", "None"),
        ("{type} == 'gpu' && {product} == 'A\\'", "None"),
    ],
)
def test_only_expressions_of_our_form_are_recognised(expression: str, selects: str) -> None:
    names = {name: f"device.attributes['gpu.nvidia.com'].{of}" for name, of in _ATTRIBUTES}
    text = f"device.driver == 'gpu.nvidia.com' && {expression.format(**names)}"
    found = dra_objects.device_class({"metadata": {"name": "x"}, "spec": {"selectors": [{"cel": {"expression": text}}]}})
    assert str(found.selection) == selects


_ATTRIBUTES = [("type", "type"), ("profile", "profile"), ("product", "productName")]


# plan --live


def test_plan_of_what_is_installed_changes_no_node(cluster: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    assert ask("plan", "--live", cluster.write(tmp_path)).stdout == "no node would change\n"


def test_plan_names_the_pods_that_hold_devices_by_claims(cluster: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    new = tmp_path / "intent.yaml"
    new.write_text(DRA.replace("replicas: 4", "replicas: 2").replace("      sizes: {large: 7680Mi}\n", ""))
    done = ask("plan", "--live", new)
    assert "2 nodes would change" in done.stdout
    assert "team/lab-0" in done.stdout
