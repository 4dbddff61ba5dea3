"""Pausing gpu-operator's GPU clients around a change that needs the GPU closed, and resuming them in every way out.

A label under nvidia.com/gpu.deploy.* other than "true" makes gpu-operator remove the client's pod. The value is the one that
mig-manager writes, so gpu-operator knows it. Labels that are "false" or absent are an administrator's choice and stay so. The
journal has the former values before the first label is written: if a run is killed, the next one resumes the clients.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.adapters.kube.cluster import ClusterError, PodView
from gpushare_node.contract.policy import Policy, Stack
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.partition.operations import CreateInstance
from gpushare_node.partition.plan import PartitionPlan
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reporting.outcome import Blocked, Status, Unmet
from gpushare_node.vendors import CLIENT_APPS, CLIENT_LABELS, PARTITIONER_APPS

_PAUSED = "paused-for-mig-change"
_RUNNING = "true"

_LEAVE_SECONDS = 300.0
"""How long clients may take to end: as long as mig-manager waits for them."""


class ClientPause(Struct):
    """The pause of the clients on one node. `digest` names the policy that the change is for."""

    context: RunContext
    digest: str

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the clients, and resume them afterwards. Blocked with CLIENTS_RUNNING if their pods do not end."""
        try:
            labels = to_pause(self.context.cluster.node().labels)
            if labels:
                journal = self.context.journal(self.digest)
                self.context.deps.folder.write_journal(replace(journal, paused={**journal.paused, **labels}))
                self.context.cluster.write_labels(dict.fromkeys(labels, _PAUSED))
                self.context.record_step("pause GPU clients", Status.CHANGED, ", ".join(labels))
            unmet = self.context.wait(self._find_running, _LEAVE_SECONDS)
            if unmet is not None:
                raise Blocked(unmet.reason, unmet.message, is_unchanged=True)
            yield
        except BaseException:
            # The API server may be what has failed; the journal has the labels, and the next run resumes the clients first.
            with suppress(ClusterError, StateDirError):
                resume(self.context)
            raise
        resume(self.context)

    def _find_running(self) -> Unmet | None:
        pods = _pods_of(self.context.platform_pods(), CLIENT_APPS)
        return (
            Unmet(reason=ConditionReason.CLIENTS_RUNNING, message=f"still running on the node: {', '.join(pods)}")
            if pods
            else None
        )


def resume(context: RunContext) -> None:
    """Resume the clients that this run, or one that was killed, has paused. ClusterError: the journal keeps their labels."""
    journal = context.deps.folder.journal()
    labels = to_resume(context.cluster.node().labels, journal.paused if journal else {})
    if labels:
        context.cluster.write_labels(labels)
        context.record_step("resume GPU clients", Status.CHANGED, ", ".join(labels))
    if journal is not None and journal.paused:
        context.deps.folder.write_journal(replace(journal, paused={}))


def must_pause(policy: Policy, plan: PartitionPlan) -> bool:
    """Return whether clients must close the GPU: gpu-operator runs them, and the plan does more than create instances."""
    destructive = any(not isinstance(operation, CreateInstance) for operation in plan.operations)
    return policy.stack is Stack.GPU_OPERATOR and destructive


def to_pause(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels to pause, with their values now: the journal gets them before the first one is written."""
    return {name: labels[name] for name in CLIENT_LABELS if labels.get(name) == _RUNNING}


def to_resume(labels: Mapping[str, str], paused: Mapping[str, str]) -> dict[str, str]:
    """Return the labels to write back: those that are still "paused". A value that another client has written since stays.

    A label that is paused although the journal has no value for it was paused by a run whose journal is lost: where no
    mig-manager runs, nothing else pauses clients. Only one value is ever paused, so it is the value to write back.
    """
    return {name: paused.get(name, _RUNNING) for name in CLIENT_LABELS if labels.get(name) == _PAUSED}


def mig_managers(pods: Iterable[PodView]) -> tuple[str, ...]:
    """Return the names of mig-manager's pods among the platform's. `mig.config` says nothing: gpu-operator sets it itself."""
    return _pods_of(pods, PARTITIONER_APPS)


def _pods_of(pods: Iterable[PodView], apps: Container[str | None]) -> tuple[str, ...]:
    return tuple(f"{pod.namespace}/{pod.name}" for pod in pods if pod.labels.get("app") in apps and not pod.has_ended)
