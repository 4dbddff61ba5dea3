"""Every mode follows every other as an upgrade of one release, with tenants on the GPUs.

node-1 is under NVIDIA's own device plugin, feature discovery and MPS control daemon; node-2 under the tests' own plugin, which
so is held to NVIDIA's. Needs `NVIDIA=FOLDER`; left out without it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.cluster.cluster_fixture import A100, COURSE, ClusterFixture, intent
from tests.e2e.cluster.machine import MachineError
from tests.e2e.cluster.plugin.asking import Asked
from tests.e2e.nvidia import charts

pytestmark = [
    pytest.mark.nvidia,
    pytest.mark.skipif(charts.folder() is None, reason="NVIDIA=FOLDER is not given"),
]

LABEL = "nvidia.com/device-plugin.config"
GPU, SHARED, SLICE = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
POOLS = {"node-1": "nvidias", "node-2": "own"}


@dataclass(frozen=True, kw_only=True)
class Mode:
    """What a pool asks for, what each node then offers, and tenants that stand in the way of every other mode.

    `profile`: how the device plugin's config begins, for by turns and under MPS the offer is the same.
    """

    sharing: str
    profile: str
    offer: dict[str, int]
    resource: str
    tenants: int = 1
    kind: str = "compute"


MIG_SHARED, HALF = "nvidia.com/mig-2g.10gb.shared", "nvidia.com/mig-3g.20gb"
MODES = {
    "exclusive": Mode(profile="exclusive", sharing="mode: exclusive", offer={GPU: 2}, resource=GPU, tenants=2),
    "time-slicing": Mode(profile="time-slicing", sharing="mode: time-slicing, replicas: 4", offer={SHARED: 8}, resource=SHARED),
    "mps": Mode(profile="mps", sharing="mode: mps, replicas: 4", offer={SHARED: 8}, resource=SHARED, kind="mps"),
    "mig-mixed": Mode(profile="mig", sharing="mode: mig, layout: {1g.5gb: 7}", offer={SLICE: 14}, resource=SLICE),
    "mig-single": Mode(
        profile="mig",
        sharing="mode: mig, layout: {1g.5gb: 7}, strategy: single",
        offer={GPU: 14},
        resource=GPU,
    ),
    "mig-shared": Mode(
        profile="mig",
        sharing="mode: mig, layout: {2g.10gb: 3}, replicas: {2g.10gb: 2}",
        offer={MIG_SHARED: 12},
        resource=MIG_SHARED,
    ),
    "per-gpu": Mode(
        profile="mig",
        sharing="mode: mig, layouts: [{gpus: [0], layout: {3g.20gb: 2}}, {gpus: [1], layout: none}]",
        offer={HALF: 2, GPU: 1},
        resource=HALF,
    ),
}
ON_BUSY = ("wait", "evict", "fail")


def walk() -> Iterator[tuple[str, str, str]]:
    """Every ordered pair once, each beginning where the one before has ended: in rounds of one stride, for seven is prime."""
    names = list(MODES)
    for number in range(len(names) * (len(names) - 1)):
        stride, step = number // len(names) + 1, number % len(names)
        yield names[step * stride % len(names)], names[(step + 1) * stride % len(names)], ON_BUSY[number % 3]


STEPS = list(walk())
assert len({step[:2] for step in STEPS}) == len(MODES) * (len(MODES) - 1)
SPARED = {("exclusive", "per-gpu"): 1}
"""How many tenants of a node are in nobody's way: those on GPUs that stay whole, and are offered as before."""


class Stand:
    """Each node in a pool of its own, node-1 with NVIDIA's programs."""

    def __init__(self, cluster_fixture: ClusterFixture) -> None:
        self.cluster_fixture = cluster_fixture
        self.mode = ""
        """In which both nodes stand, unless a step has broken off."""

    def reach(self, name: str) -> None:
        """Both nodes in the mode, wherever they stand now."""
        if self.mode != name:
            self.cluster_fixture.cluster.kubectl("delete", "pods", "--all", "--namespace", COURSE, "--grace-period=1")
            self.upgrade(name, "evict")
            self.await_mode(name)

    def upgrade(self, name: str, on_busy: str) -> None:
        """Install the mode on both nodes."""
        self.mode = ""
        fields = f"card: a100-sxm4-40gb, sharing: {{{MODES[name].sharing}}}, rollout: {{onBusy: {on_busy}}}"
        self.cluster_fixture.install(intent(**dict.fromkeys(POOLS.values(), fields)))

    def await_mode(self, name: str) -> None:
        """Until both nodes offer what the plan says, and nothing besides."""
        cluster_fixture, mode, compute_modes = self.cluster_fixture, MODES[name], {3 if name == "mps" else 0}
        for node in POOLS:

            def is_labelled(node: str = node) -> bool:
                return cluster_fixture.labels(node).get(LABEL, "").startswith(mode.profile)

            cluster_fixture.cluster.wait(is_labelled, f"{node} is of {mode.profile}")
            cluster_fixture.cluster.wait(
                lambda node=node: cluster_fixture.offer(node) == mode.offer, f"{node} offers {mode.offer}"
            )
            cluster_fixture.await_reason(node, "Ready")
            cluster_fixture.cluster.wait(lambda node=node: not cluster_fixture.taints(node), f"{node} has no taint")
            cluster_fixture.cluster.wait(
                lambda node=node: self._compute_modes(node) == compute_modes, f"{node} has {compute_modes}"
            )
        self.mode = name

    def _compute_modes(self, node: str) -> set[int]:
        return {self.cluster_fixture.fake_nvml(node).compute_mode(gpu) for gpu in range(len(A100))}

    def occupy(self, name: str) -> dict[str, str]:
        """Tenants on both nodes: name → node."""
        mode = MODES[name]
        tenants = {f"tenant-{number}-{node}": node for node in POOLS for number in range(mode.tenants)}
        for tenant, node in tenants.items():
            chosen = {"kubernetes.io/hostname": node, "gpushare.dev/pool": POOLS[node]}
            self.cluster_fixture.start(tenant, node, mode.resource, "--mib", "100", "--kind", mode.kind, nodeSelector=chosen)
        for tenant in tenants:
            self.cluster_fixture.cluster.wait(lambda tenant=tenant: self._has_come(tenant), f"{tenant} works")
        return tenants

    def _has_come(self, tenant: str) -> bool:
        pod = self.cluster_fixture.cluster.read(f"/api/v1/namespaces/{COURSE}/pods/{tenant}")
        assert pod["status"].get("phase") != "Failed", pod["status"]
        return "ready" in self.cluster_fixture.words(tenant)

    def meet(self, former: str, tenants: dict[str, str], spared: int) -> None:
        """Both nodes say who is in the way, and stand as before. Then these go."""
        cluster_fixture, in_the_way = self.cluster_fixture, []
        for node in POOLS:
            said = cluster_fixture.await_reason(node, "GPUBusy")["message"]
            named = [tenant for tenant in tenants if tenant in said]
            assert len(named) == MODES[former].tenants - spared
            assert {tenants[tenant] for tenant in named} == {node}
            assert cluster_fixture.offer(node) == MODES[former].offer
            assert not cluster_fixture.taints(node)
            in_the_way += named
        assert {cluster_fixture.phase(tenant) for tenant in tenants} == {"Running"}
        cluster_fixture.dismiss(*in_the_way)

    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Where the two plugins answer kubelet otherwise: resource and question → NVIDIA's, and the tests' own."""
        folders = [self.cluster_fixture.node(node).path("/var/lib/kubelet/device-plugins") for node in POOLS]
        found: dict[str, tuple[Any, Any]] = {}
        for resource in MODES[self.mode].offer:
            theirs, ours = (Asked(folder, resource).answers() for folder in folders)
            found |= {f"{resource}: {one}": (theirs[one], ours[one]) for one in ours if theirs[one] != ours[one]}
        return found

    @contextmanager
    def explained(self) -> Iterator[None]:
        """What fails within says how the nodes stand."""
        try:
            yield
        except (AssertionError, MachineError) as error:
            for node in POOLS:
                error.add_note(self._describe(node))
            raise

    def _describe(self, name: str) -> str:
        cluster_fixture, node = self.cluster_fixture, self.cluster_fixture.node(name)
        logs = [node.folder / "plugin.log", *sorted((node.folder / "nvidia").glob("*.log"))]
        said = [cluster_fixture.log(name)] if cluster_fixture.pod_of(name) is not None else []
        said += [f"{log.read_text(errors='replace')}\n--- {log.name}, until here" for log in logs if log.is_file()]
        lab = cluster_fixture
        state = f"{lab.condition(name)} {lab.labels(name)} {lab.taints(name)} {lab.offer(name)} {lab.fake_nvml(name).show()}"
        return "\n".join([f"--- {name}: {state}", *(line for text in said for line in text.splitlines()[-25:])])


@pytest.fixture(scope="module")
def stand(cluster_fixture: ClusterFixture) -> Iterator[Stand]:
    """Idle, in no mode. Afterwards the tests' own plugin is on both nodes again."""
    cluster_fixture.fleet.nodes_of_nvidia.add("node-1")
    for node, pool in POOLS.items():
        cluster_fixture.equip(node, A100)
        cluster_fixture.choose(**{node.replace("-", "_"): pool})
    yield Stand(cluster_fixture)
    cluster_fixture.clear()
    cluster_fixture.fleet.stop_plugin(cluster_fixture.node("node-1"))
    cluster_fixture.fleet.nodes_of_nvidia.clear()
    cluster_fixture.fleet.start_plugin(cluster_fixture.cluster, cluster_fixture.node("node-1"))


def follow(stand: Stand, former: str, then: str, on_busy: str) -> None:
    """One step."""
    cluster_fixture, spared = stand.cluster_fixture, SPARED.get((former, then), 0)
    with stand.explained():
        stand.reach(former)
        tenants = stand.occupy(former)
        stand.upgrade(then, on_busy)
        if on_busy != "evict":
            stand.meet(former, tenants, spared)
        if on_busy == "fail":
            # It tries again after a minute; an operator need not wait for that.
            cluster_fixture.cluster.kubectl("annotate", "node", *POOLS, "gpushare.dev/retry=now", "--overwrite")
        stand.await_mode(then)
        phases = sorted(cluster_fixture.phase(tenant) for tenant in tenants)
        left = spared * len(POOLS)
        assert phases == ["Gone"] * (len(tenants) - left) + ["Running"] * left
        cluster_fixture.dismiss(*tenants)
        assert stand.differences() == {}


def steps(some: list[tuple[str, str, str]]) -> pytest.MarkDecorator:
    """These as the parameters of a test."""
    return pytest.mark.parametrize(("former", "then", "on_busy"), some, ids=["{}-to-{}-{}".format(*step) for step in some])


# Two halves, each from one mode back to it: on two clusters at the same time they take half as long.
class TestHalfTheWay:
    """The rounds of strides 1 to 3."""

    @steps(STEPS[: len(STEPS) // 2])
    def test_every_mode_follows_every_other(self, stand: Stand, former: str, then: str, on_busy: str) -> None:
        follow(stand, former, then, on_busy)


class TestTheOtherHalf:
    """The rounds of strides 4 to 6."""

    @steps(STEPS[len(STEPS) // 2 :])
    def test_every_mode_follows_every_other(self, stand: Stand, former: str, then: str, on_busy: str) -> None:
        follow(stand, former, then, on_busy)
