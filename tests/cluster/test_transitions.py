"""Every mode follows every other as an upgrade of one release, with tenants on the GPUs.

node-1 is under NVIDIA's own device plugin, feature discovery and MPS control daemon; node-2 under the tests' own plugin, which
so is held to NVIDIA's. Needs `NVIDIA=FOLDER`; left out without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.lab import A100, COURSE, Lab, intent
from tests.nvidia import charts

pytestmark = [
    pytest.mark.cluster, pytest.mark.nvidia, pytest.mark.skipif(charts.folder() is None, reason="NVIDIA=FOLDER is not given"),
]  # fmt: skip

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
        profile="mig", sharing="mode: mig, layout: {1g.5gb: 7}, strategy: single", offer={GPU: 14}, resource=GPU,
    ),
    "mig-shared": Mode(
        profile="mig", sharing="mode: mig, layout: {2g.10gb: 3}, replicas: {2g.10gb: 2}", offer={MIG_SHARED: 12},
        resource=MIG_SHARED,
    ),
    "per-gpu": Mode(
        profile="mig", sharing="mode: mig, layouts: [{gpus: [0], layout: {3g.20gb: 2}}, {gpus: [1], layout: none}]",
        offer={HALF: 2, GPU: 1}, resource=HALF,
    ),
}  # fmt: skip


def walk() -> Iterator[tuple[str, str]]:
    """Every ordered pair once, each beginning where the one before has ended: in rounds of one stride, for seven is prime."""
    names = list(MODES)
    for stride in range(1, len(names)):
        for step in range(len(names)):
            yield names[step * stride % len(names)], names[(step + 1) * stride % len(names)]


STEPS = [(former, then, ("wait", "evict")[number % 2]) for number, (former, then) in enumerate(walk())]
assert len({step[:2] for step in STEPS}) == len(MODES) * (len(MODES) - 1)
SPARED = {("exclusive", "per-gpu"): 1}
"""How many tenants of a node are in nobody's way: those on GPUs that stay whole, and are offered as before."""


class Stand:
    """Each node in a pool of its own, node-1 with NVIDIA's programs."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.mode = ""
        """In which both nodes stand, unless a step has broken off."""

    def reach(self, name: str) -> None:
        """Both nodes in the mode, wherever they stand now."""
        if self.mode != name:
            self.lab.cluster.kubectl("delete", "pods", "--all", "--namespace", COURSE, "--grace-period=1")
            self.upgrade(name, "evict")
            self.await_mode(name)

    def upgrade(self, name: str, on_busy: str) -> None:
        """Install the mode on both nodes."""
        self.mode = ""
        fields = f"card: a100-sxm4-40gb, sharing: {{{MODES[name].sharing}}}, rollout: {{onBusy: {on_busy}}}"
        self.lab.install(intent(**dict.fromkeys(POOLS.values(), fields)))

    def await_mode(self, name: str) -> None:
        """Until both nodes offer what the plan says, and nothing besides."""
        lab, mode = self.lab, MODES[name]
        for node in POOLS:
            def is_labelled(node: str = node) -> bool:
                return lab.labels(node).get(LABEL, "").startswith(mode.profile)

            lab.cluster.wait(is_labelled, f"{node} is of {mode.profile}")
            lab.cluster.wait(lambda node=node: lab.offer(node) == mode.offer, f"{node} offers {mode.offer}")
            lab.await_reason(node, "Ready")
            lab.cluster.wait(lambda node=node: not lab.taints(node), f"{node} has no taint")
        self.mode = name

    def occupy(self, name: str) -> dict[str, str]:
        """Tenants on both nodes: name → node."""
        mode = MODES[name]
        tenants = {f"tenant-{number}-{node}": node for node in POOLS for number in range(mode.tenants)}
        for tenant, node in tenants.items():
            chosen = {"kubernetes.io/hostname": node, "gpushare.dev/pool": POOLS[node]}
            self.lab.start(tenant, node, mode.resource, "--mib", "100", "--kind", mode.kind, nodeSelector=chosen)
        for tenant in tenants:
            self.lab.await_tenant(tenant, "ready")
        return tenants


@pytest.fixture(scope="module")
def stand(lab: Lab) -> Iterator[Stand]:
    """Idle, in no mode. Afterwards the tests' own plugin is on both nodes again."""
    lab.fleet.nodes_of_nvidia.add("node-1")
    for node, pool in POOLS.items():
        lab.equip(node, A100)
        lab.choose(**{node.replace("-", "_"): pool})
    yield Stand(lab)
    lab.clear()
    lab.fleet.stop_plugin(lab.node("node-1"))
    lab.fleet.nodes_of_nvidia.clear()
    lab.fleet.start_plugin(lab.cluster, lab.node("node-1"))


@pytest.mark.parametrize(("former", "then", "on_busy"), STEPS, ids=["-to-".join(step[:2]) + f"-{step[2]}" for step in STEPS])
def test_every_mode_follows_every_other_with_tenants_on_the_gpus(stand: Stand, former: str, then: str, on_busy: str) -> None:
    lab = stand.lab
    stand.reach(former)
    tenants = stand.occupy(former)
    spared = SPARED.get((former, then), 0)
    stand.upgrade(then, on_busy)
    if on_busy == "wait":
        in_the_way: list[str] = []
        for node in POOLS:
            said = lab.await_reason(node, "GPUBusy")["message"]
            named = [tenant for tenant in tenants if tenant in said]
            assert len(named) == MODES[former].tenants - spared
            assert {tenants[tenant] for tenant in named} == {node}
            assert lab.offer(node) == MODES[former].offer
            in_the_way += named
        assert {lab.phase(tenant) for tenant in tenants} == {"Running"}
        lab.dismiss(*in_the_way)
    stand.await_mode(then)
    phases = sorted(lab.phase(tenant) for tenant in tenants)
    left = spared * len(POOLS)
    assert phases == ["Gone"] * (len(tenants) - left) + ["Running"] * left
    lab.dismiss(*tenants)
