"""What pods hold by claims, read from kubelet's and the driver's files: as the API server says it, or not at all."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.backends.backend import Allocation, CheckpointError
from gpushare_node.backends.dra.claims import parse_driver, parse_kubelet, read_claims
from gpushare_node.contract.struct import replace
from tests.node.backends.dra.claim_files import DRIVER, GPU, RECORDED, SCENES, Files, copy, place, recorded, result, state_text
from tests.node.enforce.enforcement import policy
from tests.node.enforce.test_claims import dra_policy
from tests.support import scale

KUBELETS_OWN = (
    r'{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":'
    r"[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\","
    r"\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":"
    r"[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":null,\"RequestNames\":[\"test request\"],"
    r'\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":2570581864}'
)
"""A file from the tests of kubelet 1.36.3, with the checksum that kubelet expects."""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(folder=tmp_path)


def by_the_api(scene: str) -> set[tuple[Any, ...]]:
    """Who holds what by the API server's claims and slices."""
    uuids = {
        (one["spec"]["pool"]["name"], device["name"]): device["attributes"]["uuid"]["string"]
        for one in recorded(scene, "resourceslices")
        for device in one["spec"]["devices"]
    }
    found = set()
    for claim in recorded(scene, "resourceclaims"):
        for given in claim["status"]["allocation"]["devices"]["results"]:
            consumed = given.get("consumedCapacity", {})
            for pod in claim["status"]["reservedFor"]:
                found.add(
                    (
                        pod["uid"],
                        claim["metadata"]["namespace"],
                        claim["metadata"]["name"],
                        claim["metadata"]["uid"],
                        given["request"].split("/")[0],
                        uuids[given["pool"], given["device"]],
                        in_mib(consumed.get("memory")),
                        None if "shares" not in consumed else int(consumed["shares"]),
                    )
                )
    return found


def in_mib(text: str | None) -> float | None:
    if text is None:
        return None
    return int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]] if text[-1] == "i" else int(text) / 2**20


def described(one: Allocation) -> tuple[Any, ...]:
    assert one.claim is not None
    claim, (device,) = one.claim, one.ids
    memory = None if claim.memory_bytes is None else claim.memory_bytes / 2**20
    return one.pod_uid, claim.namespace, claim.name, claim.uid, claim.request, device, memory, claim.shares


@pytest.mark.parametrize("scene", SCENES)
def test_recorded_files_say_what_the_api_server_says(tmp_path: Path, scene: str) -> None:
    copy(scene, tmp_path)
    found = read_claims(None, tmp_path)
    assert found
    assert {described(one) for one in found} == by_the_api(scene)
    assert {(one.container, one.resource) for one in found} == {("", DRIVER)}


def test_file_of_kubelets_own_tests_is_read(tmp_path: Path) -> None:
    (tmp_path / "dra_manager_state").write_text(KUBELETS_OWN)
    (found,) = read_claims(None, tmp_path) or ()
    assert (found.pod_uid, found.resource) == ("139cdb46-f989-4f17-9561-ca10cfb509a6", "test-driver.cdi.k8s.io")


def test_a_kubelet_without_claims_has_no_list_and_needs_no_driver(tmp_path: Path) -> None:
    assert read_claims(None, tmp_path) is None
    for text in (state_text(None), state_text([])):
        (tmp_path / "dra_manager_state").write_text(text)
        assert read_claims(None, tmp_path) == ()


def test_the_resource_is_the_class_of_the_devices_profile(files: Files) -> None:
    files.claim("whole", result("gpu-0"))
    files.claim("part", result("gpu-1-mig-1g10gb-me-20-0"), uuids={"gpu-1-mig-1g10gb-me-20-0": "MIG-1"})
    files.claim("other", result("gpu-1-mig-2g20gb-14-2"), uuids={"gpu-1-mig-2g20gb-14-2": "MIG-2"})
    share = {"replicas": 1, "memoryMiB": 9728, "capMiB": None, "toleranceMiB": 0}
    own = policy(
        backend="dra",
        dra={"driver": DRIVER, "shares": None, "onDemand": False},
        profile=None,
        resources={"gpushare-pool": 2},
        shares=[
            {"resource": "gpushare-pool", "profile": None, **share},
            {"resource": "gpushare-pool-1g-10gb-me", "profile": "1g.10gb+me", **share},
        ],
    )
    assert [one.resource for one in files.read(own)] == ["gpushare-pool", "gpushare-pool-1g-10gb-me", DRIVER]
    assert {one.resource for one in files.read(replace(own, dra=None))} == {DRIVER}


def test_devices_listed_twice_after_a_restart_of_kubelet_count_once(files: Files) -> None:
    files.claim("twice", result("gpu-0"), devices=["gpu-0", "gpu-0"])
    assert [one.ids for one in files.read()] == [(GPU.format(0),)]


def test_a_claim_of_several_pods_is_an_allocation_to_each(files: Files) -> None:
    uid = files.claim("shared", result("gpu-0"), pods=("pod-1", "pod-2"))
    found = files.read()
    assert [(one.pod_uid, one.claim and one.claim.uid) for one in found] == [("pod-1", uid), ("pod-2", uid)]


def test_the_request_is_named_without_its_alternative(files: Files) -> None:
    files.claim("alternative", result("gpu-0", request="gpu/at-0"))
    assert [one.claim and one.claim.request for one in files.read()] == ["gpu"]


def test_claims_of_other_drivers_are_listed_without_devices(files: Files) -> None:
    files.claim("nic", drivers={"nic.example.com": {"Devices": [{"DeviceName": "gpu-0"}]}})
    files.claim("both", result("gpu-0"), drivers={DRIVER: {"Devices": None}, "nic.example.com": {"Devices": None}})
    files.claim("none", drivers={})
    found = [(one.claim and one.claim.name, one.resource, one.ids) for one in files.read()]
    assert found == [
        ("nic", "nic.example.com", ()),
        ("both", DRIVER, (GPU.format(0),)),
        ("both", "nic.example.com", ()),
        ("none", "", ()),
    ]


def of_another_driver(files: Files) -> None:
    files.claim("c", result("gpu-0", driver="gpu.example.com"), devices=["gpu-0"])


def unknown_to_the_driver(files: Files) -> None:
    files.claim("c", result("gpu-0"))
    files.prepared.clear()


def without_allocation(files: Files) -> None:
    uid = files.claim("c", result("gpu-0"))
    files.prepared[uid]["status"] = {}


def on_another_device(files: Files) -> None:
    files.claim("c", result("gpu-1"), devices=["gpu-0"])


def on_more_devices(files: Files) -> None:
    files.claim("c", result("gpu-0"), devices=["gpu-0", "gpu-1"])


def not_prepared_yet(files: Files) -> None:
    files.claim("c", result("gpu-0"), devices=[], uuids={})


def with_one_uuid_of_two_devices(files: Files) -> None:
    files.claim("c", result("gpu-0"))
    files.claim("d", result("gpu-1"), uuids={"gpu-1": GPU.format(0)}, pods=("pod-2",))


def with_two_uuids_of_one_device(files: Files) -> None:
    files.claim("c", result("gpu-0"))
    files.claim("d", result("gpu-0"), uuids={"gpu-0": GPU.format(1)}, pods=("pod-2",))


def with_a_uuid_that_is_none(files: Files) -> None:
    files.claim("c", result("gpu-0"), uuids={"gpu-0": "0000:01:00.0"})


@pytest.mark.parametrize(
    "lie",
    [
        of_another_driver,
        unknown_to_the_driver,
        without_allocation,
        on_another_device,
        on_more_devices,
        not_prepared_yet,
        with_one_uuid_of_two_devices,
        with_two_uuids_of_one_device,
        with_a_uuid_that_is_none,
    ],
)
def test_a_claim_of_which_the_files_differ_is_on_an_unknown_device(files: Files, lie) -> None:
    """It is listed, because its pod holds something, and no id is a UUID, because that may be any device."""
    lie(files)
    found = [one for one in files.read() if one.pod_uid == "pod-1"]
    assert found
    assert all(one.ids and not any(one.startswith(("GPU-", "MIG-")) for one in one.ids) for one in found)


def test_what_the_driver_keeps_of_claims_without_pods_is_ignored(files: Files) -> None:
    name = "gpu-0-mig-1g5gb-19-0"
    files.claim("old", result(name), uuids={name: "MIG-old"})
    files.claims.clear()
    files.claim("new", result(name), uuids={name: "MIG-new"})
    assert [one.ids for one in files.read()] == [("MIG-new",)]


def test_files_that_have_not_changed_are_parsed_once(files: Files) -> None:
    """Enforcement reads them every ten seconds, and a node may have thousands of claims."""
    files.claim("c", result("gpu-0"))
    files.write()
    for path, parse in ((files.folder / "dra_manager_state", parse_kubelet), (place(files.folder), parse_driver)):
        before = parse(path.read_bytes())
        assert parse(path.read_bytes()) is before


def test_version_1_of_the_drivers_claims_is_read_if_it_is_alone(files: Files) -> None:
    files.claim("c", result("gpu-0", consumedCapacity={"memory": "3840Mi"}))
    files.write()
    text = json.loads(place(files.folder).read_text())
    place(files.folder).write_text(json.dumps({"v1": text["v2"]}))
    (found,) = read_claims(None, files.folder) or ()
    assert (found.ids, found.claim and found.claim.memory_bytes) == ((GPU.format(0),), 3840 << 20)


def test_administrators_access_is_told_apart(files: Files) -> None:
    files.claim("watch", result("gpu-0", adminAccess=True))
    assert [one.claim and one.claim.is_admin for one in files.read()] == [True]


@pytest.mark.parametrize("text", ["", "-1", "1 Mi", "1e999"])
def test_what_consumes_no_quantity_is_refused(text: str) -> None:
    claim = {"status": {"allocation": {"devices": {"results": [result("gpu-0", consumedCapacity={"memory": text})]}}}}
    with pytest.raises(ValueError, match="must be a quantity"):
        parse_driver(json.dumps({"v2": {"preparedClaims": {"c": claim}}}).encode())


ENTRY = {"ClaimUID": "u", "ClaimName": "c", "Namespace": "n", "PodUIDs": {"p": {}}, "DriverState": {}}

UNREADABLE_STATES = [
    "",
    "{",
    "[]",
    "null",
    "[" * 100_000,
    b"\xff",
    "{}",
    '{"Data": {}, "Checksum": 1}',
    '{"Data": "{}", "Checksum": 1}',
    '{"Data": "\\ud800", "Checksum": 1}',
    KUBELETS_OWN.replace("dev-1", "dev-2"),
    KUBELETS_OWN.replace("2570581864", "true"),
    state_text({}),
    state_text([3]),
    state_text([ENTRY, ENTRY]),
    state_text([ENTRY, {**ENTRY, "ClaimUID": "v"}]),
    *(state_text([{key: value for key, value in ENTRY.items() if key != left}]) for left in ENTRY),
    *(state_text([{**ENTRY, key: 3}]) for key in ENTRY),
    state_text([{**ENTRY, "DriverState": {DRIVER: None}}]),
    state_text([{**ENTRY, "DriverState": {DRIVER: {"Devices": [{"DeviceName": ""}]}}}]),
    state_text([{**ENTRY, "DriverState": {DRIVER: {"Devices": "gpu-0"}}}]),
]


@pytest.mark.parametrize("text", UNREADABLE_STATES, ids=lambda text: repr(text[-60:]))
def test_a_list_of_claims_that_kubelet_would_not_read_is_an_error(tmp_path: Path, text: str | bytes) -> None:
    (tmp_path / "dra_manager_state").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CheckpointError, match="dra_manager_state"):
        read_claims(None, tmp_path)


def claims(**changes: Any) -> str:
    return json.dumps({"v2": {"preparedClaims": {"uid-c": {"status": {"allocation": {"devices": changes}}}}}})


UNREADABLE_CHECKPOINTS = [
    "",
    "{",
    "[]",
    "null",
    "[" * 100_000,
    b"\xff",
    "{}",
    '{"checksum": 1, "v3": {}}',
    '{"v2": []}',
    '{"v2": {"preparedClaims": []}}',
    '{"v2": {"preparedClaims": {"uid-c": 3}}}',
    '{"v2": {"preparedClaims": {"uid-c": {"status": 3}}}}',
    '{"v2": {"preparedClaims": {"uid-c": {"preparedDevices": {}}}}}',
    '{"v2": {"preparedClaims": {"uid-c": {"preparedDevices": [{"devices": [{"gpu": {"info": {"uuid": "GPU-a"}}}]}]}}}}',
    claims(results={}),
    claims(results=[{"driver": DRIVER}]),
    claims(results=[result("gpu-0") | {"device": 0}]),
    claims(results=[result("gpu-0", adminAccess="yes")]),
    claims(results=[result("gpu-0", consumedCapacity={"memory": 3840})]),
    claims(results=[result("gpu-0", consumedCapacity={"memory": "-1Mi"})]),
    claims(results=[result("gpu-0", consumedCapacity=["memory"])]),
]


@pytest.mark.parametrize("text", UNREADABLE_CHECKPOINTS, ids=lambda text: repr(text[-60:]))
def test_a_checkpoint_of_the_driver_that_is_none_is_an_error(files: Files, text: str | bytes) -> None:
    files.claim("c", result("gpu-0"))
    files.write()
    place(files.folder).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CheckpointError, match=r"checkpoint\.json"):
        read_claims(None, files.folder)


def test_a_missing_checkpoint_of_the_driver_is_an_error_while_pods_have_claims_of_it(files: Files) -> None:
    files.claim("c", result("gpu-0"))
    files.write()
    place(files.folder).unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint\.json is missing, and pods have claims of gpu\.nvidia\.com"):
        read_claims(None, files.folder)


def test_a_claim_that_a_removed_driver_left_is_of_unknown_devices_where_the_pool_has_no_claims(files: Files) -> None:
    """Kubelet keeps it in its list for good; the other pods' claims and devices are known all the same."""
    files.claim("c", result("gpu-0"))
    files.write()
    place(files.folder).unlink()
    assert [(one.resource, one.ids) for one in read_claims(policy(), files.folder) or ()] == [(DRIVER, ())]
    with pytest.raises(CheckpointError, match=r"checkpoint\.json is missing"):
        read_claims(dra_policy({"replicas": 4, "memoryMiB": 15360, "capMiB": 3712}), files.folder)


@pytest.mark.parametrize("name", ["dra_manager_state", "checkpoint.json"])
def test_no_beginning_of_a_file_is_taken_for_the_file(tmp_path: Path, name: str) -> None:
    copy("memory", tmp_path)
    target = {"dra_manager_state": tmp_path / name, "checkpoint.json": place(tmp_path)}[name]
    whole = (RECORDED / "memory" / name).read_bytes().rstrip()
    dice = random.Random(7)
    for length in sorted({0, 1, len(whole) - 1, *(dice.randrange(len(whole)) for _ in range(scale.examples(600)))}):
        target.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_claims(None, tmp_path)


def test_a_changed_list_of_claims_is_never_another_list(tmp_path: Path) -> None:
    copy("memory", tmp_path)
    right, path = read_claims(None, tmp_path), tmp_path / "dra_manager_state"
    whole = path.read_bytes()
    dice = random.Random(8)
    for at in (dice.randrange(len(whole)) for _ in range(scale.examples(3000))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(7)]) + whole[at + 1 :])
        try:
            found = read_claims(None, tmp_path)
        except CheckpointError:
            continue
        assert found == right
