"""What `enforce` would do to a node that is only observed: the annotation `gpushare.dev/would` and the message.

The annotation is bounded: at most sixteen steps of each GPU and twenty pods are listed, and the rest is counted.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gpushare_node.adapters.kube.cluster import CHANGE_TAINTS, PLUGIN_LABEL, ClusterError, NodeView, PodView
from gpushare_node.adapters.kube.connection import jitter
from gpushare_node.backends.backend import CheckpointError, NodeBackend
from gpushare_node.contract.names import BACKEND_LABEL, NOT_READY_TAINTS
from gpushare_node.contract.policy import Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.gpus.steps import names_of, postponed_result, step_result
from gpushare_node.gpus.view import GpuView, build_view, missing_gpus
from gpushare_node.membership import desired, layout_request
from gpushare_node.partition import GpuPlan
from gpushare_node.reconcile.usage import DeviceHolder, find_affected, find_allocated, find_blocker, find_holders
from gpushare_node.reporting.outcome import Status
from gpushare_node.vendors import LAYOUT_TAINTS
from gpushare_node.vendors.driver import GpuInfo

MAX_STEPS = 16
MAX_PODS = 20
_MAX_DETAIL = 300


class Observation(Struct):
    """`message` is for the node's condition, `would` the annotation's JSON."""

    message: str
    would: str


def unreadable(policy: Policy, problem: str) -> Observation:
    """Return the observation of a node whose GPUs cannot be read: what would change is unknown."""
    return Observation(message=problem, would=_text({"pool": policy.pool, "unknown": problem[:_MAX_DETAIL]}))


def observe(
    policy: Policy,
    surveys: tuple[GpuInfo, ...],
    node: NodeView,
    pods: Sequence[PodView] | None,
    backend: NodeBackend,
) -> Observation:
    """Return what would change. `pods` None: not known."""
    holders: tuple[DeviceHolder, ...] = ()
    unknown = ""
    try:
        holders = find_holders(backend.read_checkpoint(), pods)
    except CheckpointError as error:
        unknown = str(error)[:_MAX_DETAIL]
    view = build_view(surveys, policy, allocated=find_allocated(holders), pending_modes={})
    offered = backend.advertised(node.allocatable)
    is_claimed = node.has_claims and policy.backend.has_claims
    affected = frozenset() if is_claimed else find_affected(None, policy, node.labels, offered)
    labels = _labels(policy, node, backend)
    blocker = find_blocker(view, holders, affected)
    using = sorted({holder.name.removeprefix("pod ") for holder in blocker.holders}) if blocker else []
    gpus = {str(gpu.index): steps for gpu in view.plan.gpus if (steps := _steps(gpu, view, policy))}
    resources = backend.expected(policy, missing_gpus(view))
    is_misnamed = bool(layout_request(policy).keys() & labels.keys() & node.labels.keys())
    is_asked = policy.partitioner is Partitioner.CONFIG_MANAGER and (bool(gpus) or is_misnamed)
    offers = bool(offered) or node.has_claims
    drains = offers and bool(gpus or affected or labels.keys() & {PLUGIN_LABEL, BACKEND_LABEL} or is_asked)
    found: dict[str, Any] = {
        "pool": policy.pool,
        "gpus": {index: _bounded(steps, MAX_STEPS) for index, steps in gpus.items()},
        "leftAlone": {str(unfit_gpu.index): unfit_gpu.detail[:_MAX_DETAIL] for unfit_gpu in view.plan.unfit},
        "labels": labels,
        "taints": [*([policy.repartitioning_taint.value] if drains else []), *(LAYOUT_TAINTS if is_asked else [])],
        "removedTaints": sorted({taint.key for taint in node.taints if taint.key in (*NOT_READY_TAINTS, *CHANGE_TAINTS)}),
        "resources": {} if is_claimed or resources == offered else resources,
        "pods": _bounded(using, MAX_PODS),
        "unknown": unknown,
    }
    changes = {key: value for key, value in found.items() if value}
    return Observation(message=_message(view, changes, len(labels), blocker.message if blocker else ""), would=_text(changes))


def _labels(policy: Policy, node: NodeView, backend: NodeBackend) -> dict[str, str]:
    """Return the labels that the node lacks. Which devices the profile is published for does not change its first name."""
    published = backend.publish(None, node.labels.get(PLUGIN_LABEL, ""), policy.profile, frozenset())
    labels = desired(policy, published) | layout_request(policy)
    if node.backend is not policy.backend:
        labels[BACKEND_LABEL] = policy.backend.value
    return {name: value for name, value in labels.items() if node.labels.get(name) != value}


def _steps(gpu: GpuPlan, view: GpuView, policy: Policy) -> list[str]:
    survey = view.survey(gpu.uuid)
    names = {} if survey is None else names_of(survey)
    steps = ["reset the compute mode"] if gpu.uuid in view.compute_modes else []
    steps += [step_result(operation, gpu.index, Status.CHANGED, names).step for operation in gpu.operations]
    if not gpu.is_final:
        instances = next(one.instances for one in policy.gpus if one.index == gpu.index)
        steps += [f"create {place}" for place in postponed_result(gpu, instances).after]
    return steps


def _message(view: GpuView, changes: dict[str, Any], labels: int, in_the_way: str) -> str:
    parts = []
    if "gpus" in changes:
        parts.append(f"change GPU {', '.join(changes['gpus'])}")
    if labels:
        parts.append(f"set {labels} label{'' if labels == 1 else 's'}")
    if "removedTaints" in changes:
        parts.append(f"remove the taint {' and '.join(changes['removedTaints'])}")
    text = f"Nothing is changed on this node; enforce would {', '.join(parts) or 'change nothing'}."
    if in_the_way:
        text += f" In use by {in_the_way}."
    text += "".join(f" GPU {unfit_gpu.index} would not be changed: {unfit_gpu.detail}." for unfit_gpu in view.plan.unfit)
    return text + (f" It is unknown which pods hold GPUs: {changes['unknown']}." if "unknown" in changes else "")


def _bounded(texts: Iterable[str], most: int) -> list[str]:
    found = list(texts)
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more"]


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


_CHANGE_SECONDS = 60.0
"""How often a change on the node is looked at: pods come and go all the time."""

_NODE_SECONDS = 600.0
"""How often the node is read without a change here: its labels may have changed."""

_RETRY_SECONDS = 15.0

_LOG = logging.getLogger(__name__)

Trouble = tuple[ConditionReason, str] | None


class Observer(Struct, frozen=False):
    """Keeps the condition and the annotation of a node that is only observed current, in place of `NodeMonitor`.

    It repairs, releases and deletes nothing. A node in a steady state costs one read in ten minutes. `publish` writes what is
    found, from the work queue's thread; it raises ClusterError.
    """

    enforcer: Enforcer
    publish: Callable[[tuple[GpuInfo, ...], Trouble], None]
    is_leaving: bool = False
    _seen: object = None
    _next_at: float = float("-inf")
    _changed_at: float = float("-inf")

    def look(self, now: float) -> None:
        """Publish if something changed, or if it is time to. `now` is monotonic seconds."""
        trouble, inventory = self.enforcer.reason(), self.enforcer.inventory
        seen = (inventory.surveys, frozenset(inventory.grants), trouble and trouble[0])
        is_changed = seen != self._seen and now >= self._changed_at + _CHANGE_SECONDS
        if not is_changed and now < self._next_at:
            return
        self._seen, self._changed_at = seen, now if is_changed else self._changed_at
        self._next_at = now + _RETRY_SECONDS
        reason = (trouble[0] if trouble else ConditionReason.OBSERVING).word
        self.enforcer.metrics.ready.replace([((reason,), 1)])
        self.enforcer.queue.send(partial(self._publish, inventory.surveys or (), trouble, now))

    def _publish(self, surveys: tuple[GpuInfo, ...], trouble: Trouble, now: float) -> None:
        """On the work queue's thread."""
        try:
            self.publish(surveys, trouble)
            self._next_at = now + jitter(_NODE_SECONDS)
        except ClusterError as error:
            self.enforcer.metrics.api_errors.add("node")
            _LOG.warning("the node's status could not be updated: %s", error)
