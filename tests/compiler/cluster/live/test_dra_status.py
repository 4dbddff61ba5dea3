"""Pools of NVIDIA's DRA driver in `status`: shares, slices, claims without pods, and what cannot be read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import INTENT, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.dra_cluster import (
    LARGE,
    LIMIT,
    MIG,
    NOTEBOOKS,
    ON_DEMAND,
    add_claim,
    add_pod,
    add_slice,
    device,
    replace_slice,
    rows,
    use,
    words,
)
from tests.compiler.cluster.live.rights import allowed_by
from tests.support.fake_api.server import ApiServer


def test_shares_of_classes_are_counted_from_slices_and_claims(dra: LiveCluster, ask: Ask) -> None:
    done = ask("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert ["notebooks", "time-slicing", "2/2", NOTEBOOKS, "16", "16", "3", "13"] in rows(done.stdout)
    assert ["gpushare-training-1g-5gb", "3", "3", "0", "3"] in [row[-5:] for row in rows(done.stdout)]
    assert ["t4-1", "notebooks", "dra", f"{NOTEBOOKS}:", "2", "2", "as", "planned"] in rows(done.stdout)
    assert "2 claims have devices, 0 wait" in done.stdout
    assert ["notebooks", "team/large", "t4-1", f"{NOTEBOOKS}:", "2", "-", "7448Mi"] in rows(done.stdout)


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


def test_document_with_slices_is_valid_under_its_schema(dra: LiveCluster, ask: Ask) -> None:
    document = json.loads(ask("status", "--format", "json").stdout)
    assert schema.accepts(schema.load("status.v1"), document)
    assert document["pools"]["notebooks"]["backend"] == "dra"
    node = document["pools"]["notebooks"]["nodes"][0]
    assert (node["ready"], node["slices"]) == (True, {"devices": {NOTEBOOKS: 2}, "problem": None, "claims": 2})
    assert document["claims"] == {"allocated": 2, "pending": 0, "withoutPods": [], "sharedNames": {}}
    assert "Nodes of NVIDIA" in ask("status", "--html").stdout


def test_a_cluster_of_device_plugins_is_asked_for_slices_alone(live: LiveCluster, ask: Ask) -> None:
    live.api.forget_requests()
    document = json.loads(ask("status", "--format", "json").stdout)
    assert [path for _, path in live.api.requests if "resource.k8s.io" in path] == ["/apis/resource.k8s.io/v1/resourceslices"]
    assert (document["claims"], document["pools"]["notebooks"]["backend"]) == (None, "device-plugin")


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
    dra: LiveCluster, ask: Ask, change: Callable[[ApiServer], object], reason: str, message: str
) -> None:
    change(dra.api)
    document = json.loads(ask("status", "t4-2", "--format", "json").stdout)
    [node] = document["pools"]["notebooks"]["nodes"]
    assert (node["ready"], node["reason"]) == (False, reason)
    assert message in node["message"]


def test_newest_generation_of_slices_counts(dra: LiveCluster, ask: Ask) -> None:
    add_slice(dra.api, "t4-2", [device("gpu-7")], name="older", generation=0)
    assert "t4-2  notebooks" not in ask("status").stdout.split("DRA NODE")[0]


def test_incomplete_slices_offer_nothing(dra: LiveCluster, ask: Ask) -> None:
    replace_slice(dra.api, [device("gpu-0"), device("gpu-1")], count=2)
    shares = json.loads(ask("status", "--format", "json").stdout)["pools"]["notebooks"]["shares"][NOTEBOOKS]
    assert shares == {"wanted": 16, "offered": 8, "used": 3, "free": 5}


def test_slices_on_a_node_of_a_device_plugin_are_reported(api: ApiServer, ask: Ask) -> None:
    plugin = LiveCluster(api, INTENT)
    plugin.add_node("t4-1", "notebooks", labels={"gpushare.dev/backend": "none"})
    add_slice(api, "t4-1", [device("gpu-0")])
    said = ask("status").stdout
    assert "each GPU can be given twice" in said
    assert "in a pool of another back end" in said


def test_claims_whose_pods_are_gone_are_named(dra: LiveCluster, ask: Ask) -> None:
    """Also that of a pod of the same name that is another one now."""
    add_claim(dra.api, "team", "gone", on=("t4-2", "gpu-0"))
    add_pod(dra.api, "team", "again", "t4-2")
    add_claim(dra.api, "team", "again", on=("t4-2", "gpu-1"), uid="former")
    document = json.loads(ask("status", "--format", "json").stdout)
    assert [one["name"] for one in document["claims"]["withoutPods"]] == ["again-gpu-abcde", "gone-gpu-abcde"]
    assert ["team/gone-gpu-abcde", "gpu-0", "of", "t4-2", "gone"] in rows(ask("status").stdout)


def test_two_classes_of_one_name_are_reported(dra: LiveCluster, ask: Ask) -> None:
    dra.api.add("deviceclasses", "other", {"spec": {"extendedResourceName": LIMIT}})
    document = json.loads(ask("status", "--format", "json").stdout)
    assert document["claims"]["sharedNames"] == {LIMIT: [LARGE, "other"]}
    assert [LIMIT, f"{LARGE},", "other"] in rows(ask("status").stdout)


@pytest.mark.parametrize(("plural", "status"), [("resourceslices", 403), ("resourceclaims", 403), ("resourceslices", 404)])
def test_what_cannot_be_read_is_said_and_its_numbers_are_unknown(dra: LiveCluster, ask: Ask, plural: str, status: int) -> None:
    dra.api.fail(f"/{plural}", status)
    done = ask("status")
    assert f"could not read {plural}: {status}" in done.stderr
    document = json.loads(ask("status", "--format", "json").stdout)
    shares = document["pools"]["notebooks"]["shares"][NOTEBOOKS]
    assert (shares["used"], shares["free"]) == (None, None)
    assert shares["offered"] == (None if plural == "resourceslices" else 16)
    assert document["pools"]["notebooks"]["ready"] == 2


def test_an_api_server_without_dra_is_not_a_cluster_without_claims(dra: LiveCluster, ask: Ask) -> None:
    dra.api.fail("/apis/resource.k8s.io/", 404)
    done = ask("status")
    assert done.stderr.count("this server does not have that resource") == 3
    assert json.loads(ask("status", "--format", "json").stdout)["claims"]["withoutPods"] is None


@pytest.mark.parametrize("command", [["status"], ["explain", "team/lab-0"], ["drift", "bundle"]], ids=" ".join)
def test_printed_rights_suffice_for_dra(dra: LiveCluster, ask: Ask, tmp_path: Path, command: list[str]) -> None:
    dra.write(tmp_path)
    dra.api.allows = allowed_by(list(yaml.safe_load_all(gpushare("rbac", "--helm-values").stdout)))
    done = ask(*command)
    assert (done.returncode, done.stderr) == (0, "")


def test_hostile_objects_of_tenants_do_no_harm(dra: LiveCluster, ask: Ask) -> None:
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
        dra.api.add("resourceclaims", f"odd-{number}", thing, namespace="team")
    dra.api.add("deviceclasses", "odd", {"spec": {"selectors": [{"cel": {"expression": "x" * 100_000}}, 3]}})
    add_slice(
        dra.api,
        "t4-9",
        ["x", {"name": 3, "attributes": [], "capacity": {"memory": 9, "shares": {"value": "-1"}}}],
        name="odd",
    )
    dra.api.edit("pods", "lab-0", lambda one: one["status"].update(resourceClaimStatuses=[{"name": []}, 7]), namespace="team")
    for command in (["status"], ["status", "--html"], ["explain", "team/lab-0"], ["explain", "claim/odd-3", "-n", "team"]):
        done = ask(*command)
        assert (done.returncode, "Traceback" in done.stderr, "\x1b[2J" in done.stdout) == (0, False, False), done.stderr
