"""Caps of containers that have GPUs by claims: what a claim consumes, on its own device, for the containers that use it."""

import random
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.adapters.kube.cluster import PodClaim
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.backends.backend import Allocation, Checkpoint, CheckpointError, Claim, KubeletFiles
from gpushare_node.backends.dra.claims import read_claims
from gpushare_node.contract import tenancy
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import replace
from gpushare_node.enforce.exemptions import WallClock
from gpushare_node.enforce.grants import (
    Granted,
    by_pod,
    grant,
    terms,
)
from gpushare_node.guard.inputs import ContainerId
from tests.node.backends.dra.claim_files import DRIVER, copy, recorded
from tests.node.enforce.enforcement import (
    SHARED,
    YOUNG,
    EnforcementFixture,
    ManualClock,
    await_end,
    blindness,
    container_id,
    lives,
    pod,
    pod_uid,
    policy,
    tenancy_text,
)
from tests.support import scale
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import IGNORING_SIGTERM, ProcessPool

MIB = 1 << 20
CLASS = "gpushare-pool"
DATES = WallClock(clock=ManualClock(), wall=lambda: 1.5e9)
TENANCY = tenancy.read(tenancy_text())
T4 = {"replicas": 4, "memoryMiB": 15360, "capMiB": 3712}


def dra_policy(*shares: dict[str, Any], by: str | None = "memory", on_demand: bool = False, **changes: Any) -> Policy:
    """A policy of DRA with these shares, in each of which the first class and whole GPUs are the default."""
    plain = {"resource": CLASS, "profile": None, "toleranceMiB": 0}
    return policy(
        backend="dra",
        dra={"driver": DRIVER, "shares": by, "onDemand": on_demand},
        profile=None,
        shares=[plain | share for share in shares],
        **{"resources": {CLASS: 2}} | changes,
    )


def claimed(name: str = "c", device: str = "GPU-a", *, number: int = 1, resource: str = CLASS, **changes: Any) -> Allocation:
    """What the pod of this number has by a claim."""
    fields: dict[str, Any] = {"uid": f"uid-{name}", "namespace": "team", "name": name, "request": "gpu"}
    return Allocation(pod_uid=pod_uid(number), container="", resource=resource, ids=(device,), claim=Claim(**fields | changes))


def of_others(name: str, driver: str) -> Allocation:
    """A claim of a driver whose files are not read."""
    return replace(claimed(name), resource=driver, ids=())


def uses(name: str = "c", *requests: str, container: str = "main") -> PodClaim:
    return PodClaim(name=name, requests={container: frozenset(requests or {""})})


def granted(own: Policy, pods: list[Any], *allocations: Allocation, profiles: Any = None) -> Granted:
    known = profiles or {"GPU-a": None, "GPU-b": None}
    now = terms(own, TENANCY, known, FirstCaps(since=0), DATES)
    return grant(pods, by_pod(allocations), now, {})


def cap_mib(found: Granted, number: int = 1, device: str = "GPU-a") -> float | None:
    cap = found.grants[ContainerId(pod_uid(number), container_id(number))].caps.get(device)
    return None if cap is None else cap.bytes / MIB


@pytest.mark.parametrize(
    ("consumed", "desired"),
    [
        ({"memory_bytes": 3840 * MIB}, 3712),
        ({"memory_bytes": 7680 * MIB}, 7424),
        ({"memory_bytes": 15360 * MIB}, 14848),
        ({"memory_bytes": 100 * MIB}, 96),
        ({"memory_bytes": MIB}, 1),
        ({"shares": 1, "memory_bytes": 0}, 3712),
        ({"shares": 3, "memory_bytes": 0}, 11136),
        ({}, 14848),
    ],
    ids=str,
)
def test_a_claim_may_use_the_pools_part_of_what_it_consumes(consumed: dict[str, Any], desired: int) -> None:
    """A part of 3712 of 3840 MiB; whoever asks for 1 MiB gets it; without any count the claim has the whole device."""
    found = granted(dra_policy(T4), [pod("one", 1, claims=(uses(),))], claimed(**consumed))
    assert cap_mib(found) == desired
    assert found.unresolved == ()


@pytest.mark.parametrize(
    ("share", "consumed"),
    [(T4, {"memory_bytes": 0}), (T4, {"shares": 0}), (T4 | {"memoryMiB": None}, {"memory_bytes": 3840 * MIB})],
)
def test_a_claim_that_consumes_an_unknown_part_has_no_cap_and_that_is_reported(
    share: dict[str, Any], consumed: dict[str, Any]
) -> None:
    found = granted(dra_policy(share), [pod("one", 1, claims=(uses(),))], claimed(**consumed))
    assert cap_mib(found) is None
    assert found.unresolved == (
        "team/one, container main: what claim c consumes of GPU-a is not known; no cap is enforced there",
    )


def test_a_claim_on_an_unknown_device_has_no_cap_and_its_pod_is_no_stray_anywhere() -> None:
    found = granted(dra_policy(T4), [pod("one", 1, claims=(uses(),))], claimed(device="gpu-0", request=""))
    (own,) = found.grants.values()
    assert (own.caps, own.stray_cap) == ({}, None)
    assert found.unresolved[0].startswith(f"team/one, container main: {CLASS} of claim c was allocated on gpu-0, which is not")


def test_a_pool_without_a_cap_has_none_and_doubts_nothing() -> None:
    found = granted(dra_policy(T4 | {"capMiB": None}), [pod("one", 1, claims=(uses(),))], claimed(memory_bytes=0))
    assert (cap_mib(found), found.unresolved) == (None, ())


def test_administrators_access_neither_caps_nor_lifts_a_cap() -> None:
    watching = granted(dra_policy(T4), [pod("one", 1, claims=(uses(),))], claimed(is_admin=True))
    assert (cap_mib(watching), watching.unresolved) == (None, ())
    both = [pod("one", 1, claims=(uses(), uses("w")))]
    found = granted(dra_policy(T4), both, claimed(memory_bytes=3840 * MIB), claimed("w", is_admin=True))
    assert cap_mib(found) == 3712


def test_two_claims_of_one_device_are_added_and_those_of_two_are_apart() -> None:
    one: dict[str, Any] = {"memory_bytes": 3840 * MIB}
    pods = [pod("one", 1, claims=(uses(), uses("d"), uses("e")))]
    found = granted(dra_policy(T4), pods, claimed(**one), claimed("d", **one), claimed("e", "GPU-b", **one))
    assert (cap_mib(found), cap_mib(found, device="GPU-b")) == (7424, 3712)


def test_pods_of_the_plugin_and_of_claims_keep_their_caps_side_by_side() -> None:
    """Under either policy the other's pods have no share, and the caps that were stored for them hold."""
    pods = [pod("old", 1), pod("new", 2, claims=(uses(),))]
    allocations = (
        Allocation(pod_uid=pod_uid(1), container="main", resource=SHARED, ids=("GPU-a::1",)),
        claimed(device="GPU-b", number=2, memory_bytes=3840 * MIB),
    )
    before = granted(policy(), pods, allocations[0])
    assert (cap_mib(before), cap_mib(before, 2, "GPU-b")) == (4096, None)
    now = terms(dra_policy(T4), TENANCY, {"GPU-a": None, "GPU-b": None}, FirstCaps(since=0), DATES)
    during = grant(pods, by_pod(allocations), now, before.kept)
    assert (cap_mib(during), cap_mib(during, 2, "GPU-b"), during.unresolved) == (4096, 3712, ())
    plugin = allocations[0], claimed(device="GPU-b", number=2, resource=DRIVER, memory_bytes=3840 * MIB)
    back = grant(
        pods, by_pod(plugin), terms(policy(), TENANCY, {"GPU-a": None, "GPU-b": None}, FirstCaps(since=0), DATES), during.kept
    )
    assert (cap_mib(back), cap_mib(back, 2, "GPU-b"), back.unresolved) == (4096, 3712, ())


@pytest.mark.parametrize(
    ("claims", "allocations", "is_judged"),
    [
        ((), (), True),
        ((uses(),), (claimed(memory_bytes=MIB),), True),
        ((uses(), uses("nic")), (claimed(), of_others("nic", "nic.example.com")), True),
        ((uses(), PodClaim(name="unused", requests={})), (claimed(),), True),
        ((PodClaim(name="unused", requests={}),), (claimed("unused"),), True),
        ((uses(), uses("vgpu")), (claimed(), of_others("vgpu", "gpu.example.com")), False),
        ((uses(), uses("young")), (claimed(), of_others("young", DRIVER)), False),
        ((uses(), uses("empty")), (claimed(), of_others("empty", "")), True),
        ((uses(), uses("lost")), (claimed(),), False),
        ((uses(""),), (claimed(),), False),
        ((uses(),), (claimed("c"), claimed("c", device="gpu-1")), False),
    ],
    ids=[
        "no claim",
        "a claim of GPUs",
        "a claim of a network driver",
        "a claim that kubelet does not know and no container uses",
        "a claim that no container uses",
        "a claim of another program's GPUs",
        "a claim that is being prepared",
        "a claim that requests nothing",
        "a claim that kubelet has lost",
        "a claim without a name yet",
        "a claim with a device that is not known",
    ],
)
def test_a_claim_exempts_a_pod_only_where_it_is_not_known_what_was_allocated(
    claims: tuple[PodClaim, ...], allocations: tuple[Allocation, ...], *, is_judged: bool
) -> None:
    found = granted(dra_policy(T4), [pod("one", 1, claims=claims)], *allocations)
    assert [one.stray_cap is not None for one in found.grants.values()] == [is_judged]


@pytest.mark.parametrize(("claim", "is_judged"), [("c", True), ("lost", False), (None, True)])
def test_a_pod_by_limits_strays_as_one_by_a_claim_does(claim: str | None, *, is_judged: bool) -> None:
    """Without a claim it has nothing: no plugin gives this name here."""
    made = {"requestMappings": [{"containerName": "main", "resourceName": SHARED, "requestName": "gpu"}]}
    limited = view_pod(
        {
            "metadata": {"uid": pod_uid(1), "namespace": "team", "name": "one"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {SHARED: "1"}}}]},
            "status": {"extendedResourceClaimStatus": made | {"resourceClaimName": claim}} if claim else {},
        }
    )
    own = pod("one", 1, claims=limited.claims, resources=limited.resources)
    found = granted(dra_policy(T4), [own], *((claimed(memory_bytes=3840 * MIB),) if claim else ()))
    assert [one.stray_cap is not None for one in found.grants.values()] == [is_judged]


# Who uses which claim.


RECORDED_CAPS = {
    "memory": (
        dra_policy({"replicas": 10, "memoryMiB": 40960, "capMiB": 4000}),
        {"s0/work": 3750, "s1/work": 3750, "l/work": 7500, "two-containers/work": 3750, "two-containers/beside": 3750},
    ),
    "count": (
        dra_policy({"replicas": 4, "memoryMiB": 15360, "capMiB": 3712}, by="count"),
        {"limits/work": 3712, "claim/work": 3712, "exclusive/work": 14848},
    ),
    "exclusive": (
        dra_policy({"replicas": 1, "memoryMiB": 15360, "capMiB": 15000}, by=None),
        {"whole0/work": 15000, "whole1/work": 15000},
    ),
    "mig": (
        dra_policy(
            {"resource": f"{CLASS}-3g-20gb", "profile": "3g.20gb", "replicas": 2, "memoryMiB": 19968, "capMiB": 9000},
            {"resource": f"{CLASS}-2g-10gb", "profile": "2g.10gb", "replicas": 1, "memoryMiB": 9856, "capMiB": 9000},
            {"resource": f"{CLASS}-1g-5gb", "profile": "1g.5gb", "replicas": 1, "memoryMiB": 4864, "capMiB": 4000},
        ),
        {
            **dict.fromkeys(("half0/work", "half1/work", "half2/work"), 9000),
            "several/work": 4000,
            "several/beside": 9000,
            "whole/work": 4000,
        },
    ),
}


@pytest.mark.parametrize("scene", RECORDED_CAPS)
def test_caps_of_a_recorded_node_are_those_of_its_pods_claims(tmp_path: Path, scene: str) -> None:
    own, desired = RECORDED_CAPS[scene]
    copy(scene, tmp_path)
    allocations = read_claims(own, tmp_path) or ()
    profiles: dict[str, str | None] = {
        device["attributes"]["uuid"]["string"]: device["attributes"].get("profile", {}).get("string")
        for one in recorded(scene, "resourceslices")
        for device in one["spec"]["devices"]
    }
    pods = [view_pod(one) for one in recorded(scene, "pods")]
    found = grant(pods, by_pod(allocations), terms(own, TENANCY, profiles, FirstCaps(since=0), DATES), {})
    names = {run: f"{one.name}/{name}" for one in pods for run, name in one.containers.items()}
    caps = {
        names[container.container]: cap.bytes // MIB for container, one in found.grants.items() for cap in one.caps.values()
    }
    assert caps == desired
    assert found.unresolved == ()
    both = {"two-containers/work", "two-containers/beside"}
    assert {names[one.container] for one in found.pooled} == (both if scene == "memory" else set())
    together = [cap.bytes // MIB for one in found.rests.values() for cap in one.caps.values()]
    assert together == ([3750] if scene == "memory" else [])


REQUESTS = ("gpu", "other")


def made_up(dice: random.Random) -> tuple[list[dict[str, Any]], list[Allocation]]:
    """Pods as the API server has them, whoever wrote what into them, and what kubelet and the driver say of their claims."""
    pods: list[dict[str, Any]] = []
    for number in range(dice.randint(1, 3)):
        names = dice.sample(("a", "b", "c", "d"), dice.randint(0, 3))
        containers = [
            {
                "name": f"k{index}",
                "resources": {
                    "claims": [
                        {"name": dice.choice(("p0", "p1", "p2", "p9"))}
                        | ({"request": dice.choice((*REQUESTS, "none"))} if dice.random() < 0.5 else {})
                        for _ in range(dice.randint(0, 2))
                    ],
                    "limits": {"nvidia.com/gpu": dice.choice(("0", "1"))} if dice.random() < 0.5 else {},
                },
            }
            for index in range(dice.randint(1, 3))
        ]
        statuses = [
            {
                "name": f"k{index}",
                "containerID": f"containerd://{number}-{index}",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
            for index in range(len(containers))
        ]
        extended = {
            "resourceClaimName": "x",
            "requestMappings": [
                {
                    "containerName": dice.choice(("k0", "k1", "k7")),
                    "resourceName": dice.choice(("nvidia.com/gpu", "nvidia.com/other")),
                    "requestName": dice.choice(REQUESTS),
                }
                for _ in range(2)
            ],
        }
        templates = [dice.random() < 0.5 for _ in names]
        pods.append(
            {
                "metadata": {"uid": f"uid-{number}", "namespace": dice.choice(("team", "rival")), "name": f"pod-{number}"},
                "spec": {
                    "containers": containers,
                    "resourceClaims": [
                        {"name": f"p{index}", **({"resourceClaimTemplateName": "t"} if made else {"resourceClaimName": name})}
                        for index, (name, made) in enumerate(zip(names, templates, strict=True))
                    ],
                },
                "status": {
                    "phase": "Running",
                    "containerStatuses": statuses,
                    "resourceClaimStatuses": [
                        {"name": f"p{index}", "resourceClaimName": name}
                        for index, (name, made) in enumerate(zip(names, templates, strict=True))
                        if made
                    ],
                    **({"extendedResourceClaimStatus": extended} if dice.random() < 0.3 else {}),
                },
            }
        )
    allocations = [
        Allocation(
            pod_uid=f"uid-{number}",
            container="",
            resource=CLASS,
            ids=(device,),
            claim=Claim(
                uid=f"{namespace}/{name}",
                namespace=namespace,
                name=name,
                request=request,
                share=device,
                memory_bytes=3840 * MIB,
            ),
        )
        for number in range(3)
        for namespace, name in dice.sample([(space, name) for space in ("team", "rival") for name in "abcdx"], 4)
        for request, device in zip(REQUESTS, dice.sample(("GPU-a", "GPU-b", "gpu-9"), 2), strict=True)
    ]
    return pods, allocations


def given_by_kubelet(one: dict[str, Any], allocations: list[Allocation]) -> dict[str, set[str]]:
    """The devices that kubelet 1.36 gives to each container, written after what its claim manager does."""
    status, meta = one["status"], one["metadata"]
    made = {entry["name"]: entry["resourceClaimName"] for entry in status["resourceClaimStatuses"]}
    found: dict[str, set[str]] = {}
    for container in one["spec"]["containers"]:
        wanted: list[tuple[str, str]] = []
        for claim in one["spec"]["resourceClaims"]:
            name = claim.get("resourceClaimName") or made.get(claim["name"])
            wanted += [
                (name, use.get("request", ""))
                for use in container["resources"]["claims"]
                if use["name"] == claim["name"] and name
            ]
        extended = status.get("extendedResourceClaimStatus")
        if extended is not None:
            asked = {name for name, count in container["resources"]["limits"].items() if count != "0"}
            wanted += [
                (extended["resourceClaimName"], mapping["requestName"])
                for mapping in extended["requestMappings"]
                if mapping["containerName"] == container["name"] and mapping["resourceName"] in asked
            ]
        found[container["name"]] = {
            own.ids[0]
            for own in allocations
            for name, request in wanted
            if own.claim is not None
            and own.pod_uid == meta["uid"]
            and (own.claim.namespace, own.claim.name) == (meta["namespace"], name)
            and request in ("", own.claim.request)
        }
    return found


def test_no_container_has_a_cap_on_a_device_that_kubelet_did_not_give_it() -> None:
    dice, capped = random.Random(5), 0
    for _ in range(scale.examples(6000)):
        pods, allocations = made_up(dice)
        now = terms(dra_policy(T4), TENANCY, {"GPU-a": None, "GPU-b": None}, FirstCaps(since=0), DATES)
        views = [view_pod(one) for one in pods]
        found = grant(views, by_pod(allocations), now, {})
        for number, one in enumerate(pods):
            given = given_by_kubelet(one, allocations)
            for index, container in enumerate(one["spec"]["containers"]):
                own = found.grants[ContainerId(f"uid-{number}", f"{number}-{index}")]
                assert own.devices == given[container["name"]]
                assert own.caps.keys() == given[container["name"]] - {"gpu-9"}
                assert own.stray_cap is None or given[container["name"]] <= {"GPU-a", "GPU-b"}
                capped += len(own.caps)
    assert capped > scale.examples(6000) / 3


# Several containers with one claim.


def two(number: int = 1, **changes: Any) -> Any:
    """A pod with the containers `main` and `side`."""
    runs = {container_id(number): "main", container_id(number + 50): "side"}
    both = PodClaim(name="c", requests={"main": frozenset({""}), "side": frozenset({"gpu"})})
    fields = {"containers": runs, "started": dict.fromkeys(runs, YOUNG), "claims": (both,)}
    return pod("two", number, **fields | changes)


def rest_mib(found: Granted, number: int = 1) -> dict[str, float]:
    """What the pod as a whole may use of each device."""
    return {device: cap.bytes / MIB for device, cap in found.rests[ContainerId(pod_uid(number), "")].caps.items()}


def test_a_claim_of_several_containers_of_a_pod_is_one_cap_for_all_of_them() -> None:
    own: dict[str, Any] = {"memory_bytes": 3840 * MIB}
    pods = [two(), pod("alone", 4, claims=(uses("d"),))]
    found = granted(dra_policy(T4), pods, claimed(**own), claimed("d", number=4, **own))
    assert found.pooled == {ContainerId(pod_uid(1), container_id(one)) for one in (1, 51)}
    assert (rest_mib(found), rest_mib(found, 4), cap_mib(found, 4)) == ({"GPU-a": 3712}, {}, 3712)


def test_a_further_claim_of_one_of_them_is_added_for_all() -> None:
    side = PodClaim(name="d", requests={"side": frozenset({""})})
    own: dict[str, Any] = {"memory_bytes": 3840 * MIB}
    pods = [two(claims=(*two().claims, side))]
    found = granted(dra_policy(T4), pods, claimed(**own), claimed("d", **own))
    assert rest_mib(found) == {"GPU-a": 7424}
    apart = granted(dra_policy(T4), pods, claimed(**own), claimed("d", "GPU-b", **own))
    assert rest_mib(apart) == {"GPU-a": 3712, "GPU-b": 3712}


def test_who_only_looks_on_by_the_same_claim_is_apart() -> None:
    """What it uses itself has no cap, and would be charged to the other."""
    watch = PodClaim(name="w", requests={"main": frozenset({""}), "side": frozenset({""})})
    pods = [two(claims=(uses(), watch))]
    found = granted(dra_policy(T4), pods, claimed(memory_bytes=3840 * MIB), claimed("w", is_admin=True))
    assert (found.pooled, cap_mib(found), cap_mib(granted(dra_policy(T4), pods, claimed(), claimed("w", is_admin=True)))) == (
        set(),
        3712,
        14848,
    )


def test_a_claim_without_a_cap_leaves_all_who_use_it_without_one() -> None:
    side = PodClaim(name="d", requests={"side": frozenset({""})})
    pods = [two(claims=(*two().claims, side))]
    found = granted(dra_policy(T4), pods, claimed(memory_bytes=3840 * MIB), claimed("d", memory_bytes=0))
    assert rest_mib(found) == {}
    assert found.rests[ContainerId(pod_uid(1), "")].devices == {"GPU-a"}


def test_a_claim_is_not_given_again_to_a_container_that_is_not_listed_yet() -> None:
    """Both use it; one of them has started."""
    found = granted(dra_policy(T4), [two(containers={container_id(1): "main"})], claimed(memory_bytes=3840 * MIB))
    assert (rest_mib(found), found.pooled) == ({"GPU-a": 3712}, {ContainerId(pod_uid(1), container_id(1))})


# The whole of enforcement.


class ByClaims:
    """A node whose GPUs are given by claims of 4096 MiB, and which has no device plugin's checkpoint."""

    def __init__(self, tmp_path: Path, fake_nvml: FakeNvml, pool: ProcessPool, own: Policy | None = None) -> None:
        own = own or dra_policy({"replicas": 10, "memoryMiB": 40960, "capMiB": 4096})
        self.node = EnforcementFixture(tmp_path, fake_nvml, pool, own_policy=own)
        self.claims: tuple[Allocation, ...] | None = ()
        self.problem = ""
        files = KubeletFiles(read_devices=self.devices, read_claims=self.read, needs_claims=True)
        self.node.enforcer.inventory.read_checkpoint = files.read_checkpoint
        self.plugin = Checkpoint(allocations=(), registered={}, is_there=False)

    def devices(self) -> Checkpoint:
        return self.plugin

    def read(self) -> tuple[Allocation, ...] | None:
        if self.problem:
            raise CheckpointError(self.problem)
        return self.claims

    def admit(self, *pods: Any) -> None:
        """Pods come, with a claim each of the first GPU that has the name of the pod."""
        self.node.list.known = (*self.node.list.known, *pods)
        uuid = self.node.fake_nvml.uuid(0)
        made = [
            Allocation(
                pod_uid=one.uids[0],
                container="",
                resource=CLASS,
                ids=(uuid,),
                claim=Claim(uid=claim.name, namespace="team", name=claim.name, request="gpu", memory_bytes=4096 * MIB),
            )
            for one in pods
            for claim in one.claims
        ]
        self.claims = (*(self.claims or ()), *made)


@pytest.fixture
def by_claims(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> ByClaims:
    return ByClaims(tmp_path, two_gpus, process_pool)


def test_who_exceeds_what_its_claim_consumes_is_ended_without_any_device_plugin(by_claims: ByClaims) -> None:
    by_claims.admit(pod("greedy", 1, claims=(uses("c"),)), pod("neighbour", 2, claims=(uses("d"),)))
    greedy, neighbour = by_claims.node.begin(1, 5000, IGNORING_SIGTERM), by_claims.node.begin(2, 4000)
    by_claims.node.run(30)
    await_end(greedy)
    assert lives(neighbour)
    assert {event.pod.name for event in by_claims.node.told.events if event.pod is not None} == {"greedy"}
    assert blindness(by_claims.node) == ""


def test_an_instance_that_was_made_for_a_claim_has_its_cap_within_seconds(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    """The GPUs are listed again as soon as a claim has a device that they did not have."""
    small = f"{CLASS}-1g-5gb"
    share = {"resource": small, "profile": "1g.5gb", "replicas": 1, "memoryMiB": 4864, "capMiB": 4000}
    gpus = [{"indexes": [0, 1], "mig": True, "instances": []}]
    made = dra_policy(share, by=None, on_demand=True, mode="mig", gpus=gpus, resources={small: 14})
    for gpu in (0, 1):
        two_gpus.set_mode(gpu, True)
    by_claims = ByClaims(tmp_path, two_gpus, process_pool, made)
    by_claims.node.run(3)
    gi = two_gpus.add_instance(0, 19, 3)
    by_claims.node.list.known = (pod("greedy", 1, claims=(uses("c"),)),)
    by_claims.claims = (claimed("c", two_gpus.mig_uuid(0, gi), resource=small),)
    greedy = by_claims.node.begin(1, 4300, gi=gi)
    by_claims.node.run(8)
    await_end(greedy)


def test_of_containers_with_one_claim_the_one_that_uses_most_is_ended(by_claims: ByClaims) -> None:
    by_claims.admit(two())
    most, least = by_claims.node.begin(1, 3000), by_claims.node.begin(1, 2000, container=51)
    by_claims.node.has_begun = True
    by_claims.node.run(10)
    await_end(most)
    by_claims.node.fake_nvml.take(0, most)
    by_claims.node.run(60)
    assert lives(least)


def test_a_running_pod_with_a_claim_that_kubelet_does_not_list_makes_the_node_blind(by_claims: ByClaims) -> None:
    by_claims.admit(pod("known", 1, claims=(uses("c"),)))
    by_claims.node.run(90)
    assert blindness(by_claims.node) == ""
    by_claims.node.list.known = (*by_claims.node.list.known, pod("lost", 2, claims=(uses("d"),)))
    by_claims.node.run(90)
    assert "team/lost" in blindness(by_claims.node)


@pytest.mark.parametrize("problem", ["checkpoint.json: half written", ""])
def test_caps_hold_while_the_files_cannot_be_read_or_are_gone(by_claims: ByClaims, problem: str) -> None:
    by_claims.admit(pod("greedy", 1, claims=(uses("c"),)))
    by_claims.node.run(2)
    by_claims.problem, by_claims.claims = problem, None
    greedy = by_claims.node.begin(1, 5000)
    by_claims.node.run(10)
    await_end(greedy)
    by_claims.node.run(80)
    assert (problem or "no checkpoint") in blindness(by_claims.node)
