"""RunContext: one run of the runtime on its node: the outside worlds in one hand, and how the run looks, speaks and waits.

While it waits, the policy that is in force stays enforced: tenants work on, and nobody else holds them to their caps.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from gpushare_node.adapters.host.kubelet import NO_CHECKPOINT, Checkpoint, CheckpointError, Socket
from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.cluster import (
    POOL_LABEL,
    REPARTITIONING_TAINT,
    Cluster,
    ClusterError,
    Event,
    EventType,
    NodeView,
    PodView,
    Taint,
)
from gpushare_node.adapters.nvml.driver import DriverError
from gpushare_node.core.clock import Clock
from gpushare_node.core.policy import Policy, PolicyError, read
from gpushare_node.core.structs import Struct, field
from gpushare_node.core.tenancy import UNKNOWN
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.reconcile.eviction import DrainEvictions
from gpushare_node.reconcile.rollout_slot import RolloutSlot
from gpushare_node.reconcile.usage import Blocker, Holder, find_holders
from gpushare_node.reporting.outcome import Blocked, Outcome, Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status, StepResult

_TICK_SECONDS = 1.0
DRIVER_SECONDS = 600.0
"""How long the driver is waited for. A driver container compiles for minutes."""

_POLL_SECONDS = 5.0
"""Between two looks at the API server or the driver: a node that waits half an hour should cost neither anything."""

_EARLY_SECONDS = 10.0
"""At first it looks every second: a plugin is done within a few."""

SILENT_SECONDS = 20.0
"""What lasts no longer is not told, and what changes is told no more often. Kubelet writes what a node offers every ten."""


class CapEnforcer(Protocol):
    """Holds tenants to the caps of one policy: `enforce.enforcer`, as far as it is needed here."""

    def cycle(self) -> None:
        """One round. Never raises for anything that a tenant or the driver does."""
        ...

    def close(self) -> None:
        """Let go of the driver: its handles would block a change of MIG modes."""
        ...


class Dependencies(Struct):
    """Everything outside. `cluster` None: by hand, without an API server.

    `open_hardware` takes the digest of what the hardware is to become; `open_enforcer` the policy to be enforced. The driver is
    waited for during `driver_seconds`. `has_news`: whether the node may have changed since this was asked last. `followed`:
    the node's pods as they are followed, without a request; None where that is not known for certain. `platform` tells the
    namespaces of pods that are never evicted; None: that is not known, and nobody is. `plugin_sockets` tells a device plugin
    that has started anew from the one before.
    """

    open_hardware: Callable[[str], Hardware]
    cluster: Cluster | None
    folder: StateDir
    clock: Clock
    report: Callable[[StepResult], None]
    read_checkpoint: Callable[[], Checkpoint]
    boot_id: str
    open_enforcer: Callable[[Policy], CapEnforcer] | None = None
    driver_seconds: float = DRIVER_SECONDS
    has_news: Callable[[], bool] = lambda: True
    followed: Callable[[], Sequence[PodView] | None] = lambda: None
    platform: Callable[[], frozenset[str] | None] = lambda: UNKNOWN.platform
    plugin_sockets: Callable[[], frozenset[Socket]] = frozenset


class Relabelling(Struct):
    """The last change of the device plugin's label: which sockets there were before it, and when it was, by `Visit.slept`."""

    sockets: frozenset[Socket]
    at: float


class RunContext(Struct, frozen=False):
    """One run of the runtime on its node.

    `slept` are the seconds that it meant to sleep. On a slow machine more have passed; what it waits for is as slow as itself.
    `enforced` is the policy in force, `digest` the name of the desired one. `may_wait_for_tenants` is False once the run has
    waited for tenants in vain. `drains_at`: from then on, by our clock, the node takes a slot and waits for its tenants; None
    while no tenant has blocked it. `is_offline`: there is an API server, and it does not answer. Of one attempt:
    `may_untaint_on_abort`, the node was as before the policy when it began; `is_touched`, it has begun to change things;
    `blocker`, what blocked it when it last looked.
    """

    deps: Dependencies
    slot: RolloutSlot
    enforced: Policy | None = None
    digest: str = ""
    may_wait_for_tenants: bool = True
    drains_at: float | None = None
    is_offline: bool = False
    may_untaint_on_abort: bool = False
    is_touched: bool = False
    blocker: Blocker | None = None
    evictions: DrainEvictions = field(default_factory=DrainEvictions)
    relabelling: Relabelling | None = None
    results: list[StepResult] = field(default_factory=list)
    slept: float = 0.0
    _enforcer: CapEnforcer | None = None

    @property
    def cluster(self) -> Cluster:
        """The API server, where there is one."""
        assert self.deps.cluster is not None  # noqa: S101 - callers have asked
        return self.deps.cluster

    @property
    def is_giving_way(self) -> bool:
        """Whether tenants are in the way, and other nodes of the pool go first."""
        return self.drains_at is not None and self.deps.clock.now() < self.drains_at

    def record_step(self, step: str, target: str, status: Status, detail: str = "") -> None:
        """A step for the recap."""
        self.record_result(StepResult(step=step, target=target, status=status, detail=detail))

    def record_result(self, result: StepResult) -> None:
        """A step that somebody else has put into words."""
        self.slot.renew()
        self.results.append(result)
        self.deps.report(result)

    def set_condition(self, reason: ConditionReason, message: str) -> None:
        """Set the node's condition. What cannot be said now is said with the next reason, or when the run ends."""
        if self.deps.cluster is None:
            return
        try:
            self.deps.cluster.set_condition(reason, message)
        except ClusterError as error:
            self.record_step("condition", "node", Status.SKIPPED, str(error))

    def report_outcome(self, outcome: Outcome, *, is_news: bool) -> None:
        """The end of an attempt: the condition and, where there is something new, an event.

        The condition is the pool's that has the node; one that waits for it says so by an event alone. A node that is
        released has none. That one of hundreds waits for its turn is no event.
        """
        if outcome.reason not in (ConditionReason.WAITING_FOR_POOL, ConditionReason.RELEASED):
            self.set_condition(outcome.reason, outcome.message)
        if self.deps.cluster is not None and is_news and outcome.reason is not ConditionReason.WAITING_FOR_TURN:
            kind = EventType.NORMAL if outcome.reason.value.is_ready else EventType.WARNING
            self.deps.cluster.tell(Event(type=kind, reason=outcome.reason.word, message=outcome.message))

    def holders(self) -> tuple[Holder, ...]:
        """Who holds devices. Without an answer of the API server every allocation counts: nobody is disturbed on a guess."""
        try:
            checkpoint = self.deps.read_checkpoint()
        except CheckpointError as error:
            text = f"which pods hold GPUs cannot be read: {error}"
            raise Blocked(ConditionReason.GPU_BUSY, text, is_unchanged=True) from error
        try:
            pods = None if self.deps.cluster is None else self.deps.cluster.pods()
        except ClusterError:
            pods = None
        is_alone = self.deps.cluster is None and not self.is_offline
        if pods is None and not checkpoint.is_there and (checkpoint.has_kubelet or not is_alone):
            who = "no API server is used" if is_alone else "the API server does not answer"
            text = f"it is unknown which pods hold GPUs: {NO_CHECKPOINT}, and {who}"
            raise Blocked(ConditionReason.GPU_BUSY, text, is_unchanged=True)
        return find_holders(checkpoint, pods)

    def has_slot_for_room(self) -> bool:
        """Whether the pods that were in the way have gone, as far as is known without a request."""
        pods = None if self.blocker is None else self.deps.followed()
        if self.blocker is None or pods is None:
            return False
        with suppress(CheckpointError):
            return self.blocker.is_left_by(find_holders(self.deps.read_checkpoint(), pods))
        return False

    def await_driver(self, hardware: Hardware) -> None:
        """Until the driver answers. Blocked where it does not."""
        reason = hardware.wait(
            self.deps.driver_seconds, lambda text: self.set_condition(ConditionReason.WAITING_FOR_DRIVER, text), self.sleep
        )
        if reason is not None:
            raise Blocked(reason, reason.value.means, is_unchanged=True)

    def former(self) -> Policy | None:
        """The policy that was in force last; None where there was none, or none that can be read any more."""
        text = self.deps.folder.policy()
        try:
            return None if text is None else read(text)
        except PolicyError:
            return None

    def wait(self, find: Callable[[], Unmet | None], seconds: float) -> Unmet | None:
        """Ask again and again, until nothing is lacking (None) or the time is over: what is lacking then.

        An API server that does not answer is a lack like any other, under the last reason that was known.
        """
        end = self.deps.clock.now() + seconds
        begun = told = self.slept
        last: Unmet | None = None
        while True:
            found = self._ask(find, last)
            if found is None:
                return None
            if self.slept - told >= SILENT_SECONDS:
                told = self.slept
                self.set_condition(found.reason, found.message)
            last = found
            if self.deps.clock.now() >= end:
                return found
            pause = _TICK_SECONDS if self.slept - begun < _EARLY_SECONDS else _POLL_SECONDS
            self.sleep(min(pause, max(_TICK_SECONDS, end - self.deps.clock.now())))

    def _ask(self, find: Callable[[], Unmet | None], last: Unmet | None) -> Unmet | None:
        try:
            return find()
        except ClusterError as error:
            return Unmet(reason=last.reason if last else ConditionReason.PARTITIONING, message=str(error))

    def sleep(self, seconds: float) -> None:
        """Sleep, and once a second hold tenants to the policy in force. Stopped, when the program has been asked to end."""
        end = self.deps.clock.now() + seconds
        while (left := end - self.deps.clock.now()) > 0:
            self._enforce()
            self.slot.renew()
            self.deps.clock.sleep(min(_TICK_SECONDS, left))
        self.slept += seconds

    def _enforce(self) -> None:
        if self._enforcer is None and self.deps.open_enforcer is not None and self.enforced is not None:
            # Without a driver there is nobody to be held to anything.
            with suppress(DriverError):
                self._enforcer = self.deps.open_enforcer(self.enforced)
        if self._enforcer is not None:
            self._enforcer.cycle()

    def close_driver(self) -> None:
        """Let go of the driver, before hardware changes and at the end."""
        watch, self._enforcer = self._enforcer, None
        if watch is not None:
            watch.close()

    def stop_enforcing(self) -> None:
        """The node is no more ours to watch: a run that stays would go on to hold its policy, and write into the folder."""
        self.close_driver()
        self.enforced = None

    def is_half_done(self) -> bool:
        """Whether a change of hardware has begun and is not finished."""
        journal = self.deps.folder.journal()
        return journal is not None and journal.is_changing

    def has_failed(self) -> bool:
        """Whether the policy was tried here in vain. Such a node keeps its turn, so that a bad change goes no further."""
        journal = self.deps.folder.journal()
        return journal is not None and journal.attempts > 0 and journal.policy_digest == self.digest

    def add_taint(self, node: NodeView, pool: str | None) -> None:
        """Let no new pods come. With a pool, a node of none is labelled: by that it is found and cleaned if the pool goes."""
        claim = {POOL_LABEL: pool} if pool and POOL_LABEL not in node.labels else {}
        if claim or not any(taint.key == REPARTITIONING_TAINT for taint in node.taints):
            self.cluster.change_taints(add=(Taint(key=REPARTITIONING_TAINT, effect="NoSchedule"),), labels=claim)
            self.record_step("taint", "node", Status.CHANGED, f"{REPARTITIONING_TAINT} is set")

    def remove_taints(self, *keys: str) -> None:
        """Take away those of our taints that are there."""
        here = tuple(taint.key for taint in self.cluster.node().taints if taint.key in keys)
        if here:
            self.cluster.change_taints(remove=here)
            self.record_step("taint", "node", Status.CHANGED, f"{', '.join(here)} removed")
