"""A node on which anything may happen at any moment, and which cries out when the runtime does what it must never do.

The runtime is real, with real pynvml below it; its requests reach the API server's double without a socket, so that a run of
the node costs milliseconds. Death by SIGKILL is an exception after which neither driver, server nor disk does anything for it.
"""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

from gpushare_node.adapters.host.programs import Machine
from gpushare_node.adapters.kube.connection import ApiEndpoint, Connection
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.node_client import NodeClient
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.contract.names import BACKEND_LABEL, POOL_LABEL, RELEASE_ANNOTATION, REPARTITIONING_TAINT
from gpushare_node.contract.policy import Backend, Policy, read
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.reporting.outcome import Outcome
from gpushare_node.vendors.driver import GpuInfo
from tests.compiler.facts.mig import known_cards
from tests.node.partition import builders as geometry
from tests.node.reconcile.chaos_adapters import CheckedDriver, Disk, Killed, Pool
from tests.node.reconcile.loop_node import DEPLOY, NAME, LoopNode
from tests.support.fake_api.refusals import Refusal
from tests.support.fake_api.server import ApiServer

DCGM = "nvidia.com/gpu.deploy.dcgm"
SLOT = "gpushare-training.0"
_FIRST_PID = 4_000_001
"""Above every pid that Linux gives."""


class ChaosNode(LoopNode):
    """`fuse`: how many effects the program may still have before it dies. `chance`: the world moves on before an effect."""

    def __init__(self, folder: Path, random: Random, *gpus: str) -> None:
        self.random = random
        self.card = gpus[0]
        table = geometry.table(known_cards.geometry(self.card))
        self._names = {profile.id: profile.name for profile in table}
        self.is_down = self.is_disk_full = self.has_driver_faults = self.is_dead = False
        self.fuse: int | None = None
        self.move: Any = None
        self.chance = 0.0
        self.seen: tuple[GpuInfo, ...] | None = None
        self.goal: Policy | None = None
        self.tenants: dict[str, tuple[int, int | None, str, int]] = {}
        """Name: GPU, GPU instance, UUID, pid."""
        self.lost: set[int] = set()
        self.is_excused = False
        """The server refused something in this run: what is on the node may be of before."""
        self.was_asked = False
        """Somebody asked for a release in this run: it takes no slot."""
        self.disk_writes = 0
        self._births = 0
        super().__init__(folder, ApiServer(), *gpus)
        self.folder._files = Disk(self.folder.path, self)
        self.label(**{DCGM: "false"})

    # The runtime, and how it reaches the world.

    def start(self, policy: Policy, *, hold: bool = False) -> Outcome | None:
        """One start of the program; None if it died."""
        self.goal, self.is_dead, self.is_excused = policy, False, False
        self.was_asked = RELEASE_ANNOTATION in self.annotations()
        try:
            return self.run(policy, hold=hold)
        except Killed:
            return None
        finally:
            self.is_dead, self.fuse = False, None

    def server(self, pool: str = "training") -> NodeClient:
        address = ApiEndpoint(url="http://api", headers=dict, open_pool=lambda: Pool(self))  # type: ignore[arg-type,return-value]
        place = PodIdentity(node=NAME, namespace="gpushare", pod="partition-x", pod_uid="uid-x", pool=pool)
        connection = Connection(address, self.clock)
        self.events = EventRecorder(connection, place, self.clock)
        return NodeClient(connection, place, self.clock, self.events, self.folder)

    def _hardware(self, digest: str) -> Hardware:
        machine = Machine(boot_id=self.gpus.boot_id, reset=lambda _: "there is no nvidia-smi", make_nodes=lambda: None)
        return Hardware(
            open_driver=lambda: CheckedDriver(self), folder=self.folder, clock=self.clock, policy_digest=digest, machine=machine
        )

    def live(self) -> None:
        if self.is_dead:
            raise Killed

    def effect(self) -> None:
        """The program is about to change something, if it lives to."""
        self.live()
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.is_dead = True
                raise Killed
        if self.move is not None and self.random.random() < self.chance:
            self.move()

    def asking(self, method: str, path: str) -> Any:
        self.live()
        if method != "GET":
            self.effect()
        self.is_excused = self.is_excused or self.is_down or bool(self.api._faults)
        if self.is_down:
            raise OSError("connection refused")
        if path.endswith("/eviction") and self._offers() and not self.was_asked and not self._is_repair():
            assert NAME in self.holders(), "a pod is evicted out of turn"
        return _Checked(self) if method != "GET" else nullcontext()

    # What must never happen.

    def changing(self, call: str, uuid: str, *args: Any, **named: Any) -> None:
        """A mutating call is about to be made."""
        self.effect()
        self.seen = None
        self.reap()
        gpu = next(one for one in range(self.count) if self.fake_nvml.uuid(one) == uuid)
        if not self.is_excused:
            assert REPARTITIONING_TAINT in self.taints(), f"{call} on a node that lets pods in"
            assert self.condition() != "Ready", f"{call} on a node that says Ready"
        if call in ("destroy_compute", "destroy_instance"):
            harmed = [name for name, (own, gi, *_) in self.tenants.items() if (own, gi) == (gpu, args[0])]
            assert not harmed, f"{call}{args} on GPU {gpu} under {harmed}"
        if call == "set_mig" and self.fake_nvml.mode(gpu)[0] != named["enabled"]:
            harmed = [name for name, (own, *_) in self.tenants.items() if own == gpu]
            assert not harmed, f"MIG {named} on GPU {gpu} under {harmed}"

    def check(self, before: Mapping[str, Any]) -> None:
        """Something was written to the API server."""
        assert self.goal is not None
        had = {one["key"] for one in before["spec"].get("taints") or ()}
        if REPARTITIONING_TAINT in had - self.taints():
            is_first = self.folder.policy() is None and self.offers_what_stands()
            assert is_first or not self.is_halfway(), "pods are let in while the hardware is neither old nor new"
        said = self.condition()
        if said == "Ready" and said != _reason(before):
            assert self.is_as(self.goal), "Ready is said of other hardware"
            assert self.offers_what_stands(), "Ready is said while dead ids are offered"
        if REPARTITIONING_TAINT in self.taints() - had and self._offers() and not self.was_asked and self._is_intact():
            assert self.holders()[:1] == [NAME], "a node that offers GPUs is taken out of turn"
        assert self.labels()[DCGM] == "false", "what the operator has switched off came back"

    def is_as(self, policy: Policy) -> bool:
        return all(
            self.fake_nvml.mode(gpu.index)[0] == bool(gpu.instances)
            and sorted(profile for _, profile, *_ in self.fake_nvml.instances(gpu.index))
            == sorted(instance.profile_id or 0 for instance in gpu.instances)
            and all(computes == 1 for *_, computes in self.fake_nvml.instances(gpu.index))
            for gpu in policy.gpus
            if gpu.index not in self.lost
        )

    def is_halfway(self) -> bool:
        """Neither the policy that is desired, nor the one in force, nor whole GPUs."""
        text = self.folder.policy()
        whole = all(not self.fake_nvml.mode(gpu)[0] for gpu in range(self.count))
        return not (whole or (self.goal and self.is_as(self.goal)) or (text and self.is_as(read(text))))

    def _is_repair(self) -> bool:
        text = self.folder.policy()
        return text is not None and self.goal is not None and read(text).is_alike(self.goal)

    def _is_intact(self) -> bool:
        """Whether what the node offers is there, and what the policy in force says, as far as the driver tells."""
        text = self.folder.policy()
        is_waiting = any(len(set(self.fake_nvml.mode(gpu))) > 1 for gpu in range(self.count))
        is_as_before = text is None or self.is_as(read(text))
        return self.offers_what_stands() and is_as_before and not is_waiting and not self.has_driver_faults

    def offers_what_stands(self) -> bool:
        known = {device_id.rsplit("::", 1)[0] for ids in self.registered.values() for device_id in ids}
        return known == {uuid for gpu in range(self.count) for _, uuid in self._devices(gpu)}

    def holders(self) -> list[str]:
        """Who has the one slot."""
        return [lease["spec"]["holderIdentity"] for lease in self.api.leases("gpushare")]

    def _offers(self) -> bool:
        counts = self._node["status"]["allocatable"]
        return any(counts[name] != "0" for name in counts if name.startswith("nvidia.com/"))

    # Tenants, the plugin and kubelet.

    def api_is_up(self) -> bool:
        return not self.is_down

    def _tick(self, time: float = 0.0) -> None:
        self.live()
        self.reap()
        super()._tick(time)

    def _devices(self, gpu: int) -> list[tuple[str | None, str]]:
        if gpu in self.lost:
            return []
        if not self.fake_nvml.mode(gpu)[0]:
            return [(None, self.fake_nvml.uuid(gpu))]
        return [
            (self._names[one], self.fake_nvml.mig_uuid(gpu, gi))
            for gi, one, *_, computes in self.fake_nvml.instances(gpu)
            if computes
        ]

    def arrive(self, *, is_at_work: bool) -> None:
        """A pod comes, if the node takes any, and gets a device that the plugin offers; perhaps it works at once."""
        if self.taints() or self.is_down:
            return
        taken = {one for entry in self.entries for ids in entry["DeviceIDs"].values() for one in ids}
        free = [
            (name, device_id) for name, ids in sorted(self.registered.items()) for device_id in ids if device_id not in taken
        ]
        if not free:
            return
        resource, device = self.random.choice(free)
        try:
            gpu, gi, _ = self.fake_nvml.find_device(device.rsplit("::", 1)[0])
        except KeyError:
            return  # Kubelet gives it, and the container does not start.
        self._births += 1
        name, pid = f"tenant-{self._births}", _FIRST_PID + self._births
        self.tenant(name, device, resource)
        self.tenants[name] = gpu, gi, device, pid
        if is_at_work:
            self.fake_nvml.put(gpu, pid, 100, gi=gi)
            self.seen = None

    def leave(self, name: str) -> None:
        with suppress(Refusal):
            self.api.remove("pods", name, namespace="science")
        self.reap()

    def reap(self) -> None:
        """Pods that were deleted take their processes along. Kubelet forgets them now and then."""
        pods = {name for plural, namespace, name in self.api.store._objects if (plural, namespace) == ("pods", "science")}
        for name in self.tenants.keys() - pods:
            gpu, _, _, pid = self.tenants.pop(name)
            self.fake_nvml.take(gpu, pid)
            self.seen = None
            if self.random.random() < 0.5:
                self.entries = [entry for entry in self.entries if entry["PodUID"] != f"uid-{name}"]
                self.publish()

    def boot(self) -> None:
        """The machine starts again; kubelet has nothing to restart."""
        self.seen = None
        for name in list(self.tenants):
            self.leave(name)
        self.entries = []
        self.gpus.reboot()
        self.enumerate()


class _Checked:
    """Around one write."""

    def __init__(self, node: ChaosNode) -> None:
        self._node = node

    def __enter__(self) -> None:
        self._before = self._node.api.node(NAME)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._node.check(self._before)


def _reason(node: Mapping[str, Any]) -> str | None:
    return next((one["reason"] for one in node["status"]["conditions"] if one["type"] == "GPUShareReady"), None)


def is_clean(node: ChaosNode) -> bool:
    """Nothing of a change is left."""
    labels = node.labels()
    return (node.taints(), labels[DEPLOY], labels[DCGM], node.holders(), node.folder.journal()) == (
        set(),
        "false" if labels.get(BACKEND_LABEL) == Backend.DRA else "true",
        "false",
        [],
        None,
    ) and labels.get(POOL_LABEL) == "training"
