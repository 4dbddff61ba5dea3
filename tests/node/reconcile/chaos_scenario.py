"""ChaosRun: the history of one node, made up from its number: what may happen to it, what has, and how it must end."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import RELEASE_ANNOTATION
from gpushare_node.contract.policy import OnBusy, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import Stopped
from gpushare_node.reporting.outcome import Outcome
from tests.node.gpus.gpu_node import A100, H100
from tests.node.reconcile.chaos_node import SLOT, ChaosNode, is_clean
from tests.node.reconcile.loop_node import mig, rollout, whole
from tests.support.fake_api.refusals import Refusal

_LAYOUTS = {
    A100: (
        tuple(("1g.5gb", start) for start in range(7)),
        (("3g.20gb", 0), ("3g.20gb", 4)),
        (("3g.20gb", 4), *(("1g.5gb", start) for start in range(4))),
        (("4g.20gb", 0), ("2g.10gb", 4)),
        (("7g.40gb", 0),),
    ),
    H100: (
        tuple(("1g.10gb", start) for start in range(7)),
        (("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb+me", 5)),
        (("3g.40gb", 0), ("3g.40gb", 4)),
    ),
}
_CHANGES = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
)
_LOOKS = (
    "nvmlInit_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetComputeRunningProcesses_v3",
)
_REQUESTS = ("PATCH", "GET", "leases", "pods", "/status", "eviction", "daemonsets", "nodes/n1 ", "nodes/n1?")


class ChaosRun:
    """One run: what may happen to the node, and what has."""

    def __init__(self, folder: Path, number: int) -> None:
        self.random = Random(number)
        self.card = self.random.choice((A100, A100, H100))
        count = self.random.choice((1, 1, 2))
        self.node = self.make_node(folder, *(self.card,) * count)
        self.node.move = self.move
        self.happened: list[str] = []
        self.policy = self.new_policy()

    def make_node(self, folder: Path, *gpus: str) -> ChaosNode:
        return ChaosNode(folder, self.random, *gpus)

    def simulate(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            for _ in range(self.random.randint(0, 3)):
                self.move()
            if self.random.random() < 0.15:
                self.note("reboot")
                self.node.boot()
            if self.random.random() < 0.6:
                self.policy = self.new_policy()
            self.try_luck()
        self.heal()
        self.converge()

    def try_luck(self) -> None:
        """A run in which anything may happen."""
        node, random = self.node, self.random
        node.chance = random.choice((0.0, 0.03, 0.1))
        node.fuse = random.randint(0, 50) if random.random() < 0.4 else None
        self.run(is_holding=random.random() < 0.2)

    def run(self, *, is_holding: bool = False) -> Outcome | None:
        node, random = self.node, self.random
        end = node.clock.now() + random.randint(0, 900)
        self.note(f"run {self.policy.profile}, fuse {node.fuse}, chance {node.chance}, hold {is_holding}")
        if is_holding:
            node.on_tick = lambda time: setattr(node.clock, "is_stopped", True) if time >= end else None
        outcome = None
        try:
            outcome = node.start(self.policy, hold=is_holding)
            self.note(f"-> {outcome and (outcome.reason.word, outcome.message)}")
        except (Stopped, StateDirError) as error:
            self.note(f"-> {error!r}")
        finally:
            node.on_tick, node.clock.is_stopped = lambda _: None, False
        return outcome

    def note(self, text: str) -> None:
        self.happened.append(text)

    def new_policy(self) -> Policy:
        random, count = self.random, self.node.count
        kind = random.random()
        if kind < 0.6:
            layouts = [random.choice(_LAYOUTS[self.card]) for _ in range(count)]
            number = sum(_LAYOUTS[self.card].index(one) * 16**place for place, one in enumerate(layouts))
            made = mig(*layouts, card=self.card, key=f"mig-{number:08x}")
        else:
            made = whole(count, replicas=random.choice((1, 2, 4)), card=self.card)
        return rollout(made, on_busy=random.choice(tuple(OnBusy)), drain_timeout_seconds=random.choice((0, 20, 60)))

    # What may happen.

    def move(self) -> None:
        self.node.seen = None
        moves = self.moves()
        (move,) = self.random.choices(tuple(moves), tuple(moves.values()))
        self.note(f"{move.__name__} {move() or ''}")

    def moves(self) -> dict[Callable[[], str | None], int]:
        """What may happen, and how often beside the others."""
        return {
            self.tenant_comes: 6,
            self.tenant_goes: 4,
            self.tenant_wakes: 2,
            self.server_goes: 1,
            self.server_comes: 2,
            self.server_refuses: 3,
            self.driver_refuses: 3,
            self.mode_waits: 1,
            self.somebody_asks_for_a_mode: 1,
            self.label_is_written: 1,
            self.plugin_changes: 1,
            self.client_stays: 1,
            self.client_goes: 1,
            self.neighbour_has_the_slot: 1,
            self.disk_changes: 1,
            self.gpu_falls_off: 1,
            self.gpu_is_back: 1,
            self.release_is_asked: 1,
            self.selection_changes: 1,
            self.another_pool: 1,
        }

    def tenant_comes(self) -> None:
        self.node.arrive(is_at_work=self.random.random() < 0.5)

    def tenant_goes(self) -> None:
        if self.node.tenants:
            self.node.leave(self.random.choice(sorted(self.node.tenants)))

    def tenant_wakes(self) -> None:
        for gpu, gi, _, pid in self.node.tenants.values():
            self.node.fake_nvml.put(gpu, pid, 100, gi=gi)

    def server_goes(self) -> None:
        self.node.is_down = True

    def server_comes(self) -> None:
        self.node.is_down = False
        self.node.api.heal()

    def server_refuses(self) -> str:
        match, status = self.random.choice(_REQUESTS), self.random.choice((403, 409, 422, 429, 500, 503))
        self.node.api.fail(match, status, times=self.random.randint(1, 8), after=self.random.randint(0, 6))
        return f"{match} {status}"

    def driver_refuses(self) -> str | None:
        if len([fault for fault in self.node.fake_nvml._state.faults if fault.active]) > 6:
            return None
        function = self.random.choice(self.random.choice((_CHANGES, _LOOKS)))
        code = self.random.choice((2, 4, 9, 15, 16, 18, 19, 23, 999))
        self.node.has_driver_faults = True
        self.node.fake_nvml.fail(function, code, times=self.random.randint(1, 4), after=self.random.randint(0, 8))
        return f"{function} {code}"

    def mode_waits(self) -> None:
        code = self.random.choice((16, 19))
        self.node.fake_nvml.reset_blocked(self.gpu(), code, self.random.randint(1, 3))

    def somebody_asks_for_a_mode(self) -> None:
        gpu = self.gpu()
        current, _ = self.node.fake_nvml.mode(gpu)
        if self.random.random() < 0.3:
            self.node.fake_nvml.set_mode(gpu, current, not current)

    def label_is_written(self) -> None:
        self.node.label(**{PLUGIN_LABEL: self.random.choice(("theirs", None))})

    def plugin_changes(self) -> None:
        self.node.is_plugin_dead, self.node.is_plugin_deaf = self.random.choice(((False, False), (True, False), (False, True)))

    def client_stays(self) -> None:
        with suppress(Refusal):
            self.node.api.add_daemon_pod(
                "dcgm-x", "nvidia-dcgm", namespace="gpu-operator", node="n1", labels={"app": "nvidia-dcgm"}
            )

    def client_goes(self) -> None:
        with suppress(Refusal):
            self.node.api.remove("pods", "dcgm-x", namespace="gpu-operator")

    def neighbour_has_the_slot(self) -> None:
        spec = {"holderIdentity": "n2", "leaseDurationSeconds": 900}
        labels = {"gpushare.dev/pool": "training"}
        with suppress(Refusal):
            self.node.api.add_node("n2")
        with suppress(Refusal):
            self.node.api.add("leases", SLOT, {"metadata": {"labels": labels}, "spec": spec}, namespace="gpushare")

    def disk_changes(self) -> None:
        self.node.is_disk_full = self.random.random() < 0.3

    def gpu_falls_off(self) -> None:
        gpu = self.gpu()
        if self.node.count > 1 and self.random.random() < 0.3:
            for name in [name for name, (own, *_) in self.node.tenants.items() if own == gpu]:
                self.node.leave(name)
            self.node.lost.add(gpu)
            self.node.fake_nvml.lose(gpu)
            self.node.enumerate()

    def gpu_is_back(self) -> None:
        for gpu in self.node.lost:
            self.node.fake_nvml.find(gpu)
        if self.node.lost:
            self.node.lost.clear()
            self.node.enumerate()

    def release_is_asked(self) -> None:
        is_asked = self.random.random() < 0.3
        self.node.annotate(RELEASE_ANNOTATION, self.node.api.asking() if is_asked else None)
        self.node.was_asked |= is_asked

    def selection_changes(self) -> None:
        self.node.label(role=None if self.random.random() < 0.3 else "gpu")

    def another_pool(self) -> None:
        with suppress(Refusal):
            if self.random.random() < 0.3:
                self.node.runtime_pod("inference")
            else:
                self.node.api.remove("pods", "gpushare-inference-x", namespace="gpushare")

    def gpu(self) -> int:
        return self.random.randrange(self.node.count)

    # The end.

    def heal(self) -> None:
        """Everything outside is well again, and the tenants have gone."""
        node = self.node
        self.note("healed")
        node.move, node.chance, node.fuse = None, 0.0, None
        self.server_comes()
        self.client_goes()
        node.fake_nvml.heal()
        node.seen, node.has_driver_faults, node.is_disk_full = None, False, False
        for gpu in range(node.count):
            node.fake_nvml.reset_blocked(gpu, 0, 0)
        self.gpu_is_back()
        for name in list(node.tenants):
            node.leave(name)
        node.annotate(RELEASE_ANNOTATION, None)
        node.label(role="gpu")
        for kind, name, namespace in (("pods", "gpushare-inference-x", "gpushare"), ("leases", SLOT, "gpushare")):
            with suppress(Refusal):
                node.api.remove(kind, name, namespace=namespace)
        node.is_plugin_dead = node.is_plugin_deaf = False

    def converge(self) -> None:
        """At most one thing is left that a person must do; after that one run is enough, and the next does nothing."""
        node = self.node
        self.policy = replace(self.policy, rollout=replace(self.policy.rollout, on_busy=OnBusy.WAIT))
        outcome = self.run()
        if outcome is not None and outcome.reason is not ConditionReason.READY:
            self.resolve(outcome)
            outcome = self.run()
        assert outcome is not None
        assert outcome.reason is ConditionReason.READY, (outcome.reason, outcome.message)
        assert node.is_as(self.policy)
        assert node.offers_what_stands()
        assert node.condition() == "Ready"
        assert is_clean(node), (node.taints(), node.labels(), node.holders(), node.folder.journal())
        node.fake_nvml.forget_calls()
        node.api.forget_requests()
        node.disk_writes = 0
        assert node.start(self.policy) == replace(outcome, results=tuple(node.results))
        assert (node.fake_nvml.calls(), node.api.writes(), node.disk_writes) == ([], [], 0)

    def resolve(self, outcome: Outcome) -> None:
        """What the reason says is to be done."""
        match outcome.reason:
            case ConditionReason.PENDING_FOREIGN_CHANGE:
                for gpu in range(self.node.count):
                    self.node.fake_nvml.set_mode(gpu, self.node.fake_nvml.mode(gpu)[0])
                self.node.seen = None
            case ConditionReason.RESET_REQUIRED:
                self.node.boot()
            case ConditionReason.PARTITION_FAILED:
                assert "gpushare.dev/retry=now" in outcome.message, outcome
                self.node.annotate("gpushare.dev/retry", "now")
            case _:
                raise AssertionError(outcome)
