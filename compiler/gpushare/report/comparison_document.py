"""The `Plan` document: a comparison, as `plan --format json` prints it. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from gpushare.compare.changes import (
    Amount,
    CapChange,
    Change,
    Comparison,
    CostChanges,
    GpuChange,
    Move,
    Outage,
    PoolChange,
    Problem,
    QuotaChange,
    ResourceChange,
)
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, FileKind, SettingChange
from gpushare.report import comparison_words
from gpushare.report.comparison_verdict import verdict
from gpushare.report.document import COUNT, FLAG, TEXT, Document, Member, Shape, array, by_name, fields, optional, record, words
from gpushare_node.contract.policy import Action, OnBusy

_NAME: Shape[str] = Shape(schema={"type": "string", "minLength": 1}, write=str)
_ANY: Shape[Any] = Shape(schema={}, write=lambda value: value)
_COST: Shape[float | None] = Shape(schema={"type": ["number", "null"], "minimum": 0}, write=lambda value: value)
_STRATEGY: Shape[str | None] = Shape(schema={"enum": ["none", "single", "mixed", "", None]}, write=lambda value: value)


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


_DATE: Shape[float] = Shape(schema={"type": "string"}, write=_date)


def _sides(shape: Shape[Any]) -> Shape[tuple[Any, Any]]:
    """Return the shape of a value before and after."""
    return record("", Member("before", shape, lambda pair: pair[0]), Member("after", shape, lambda pair: pair[1]))


_AMOUNT: Shape[Amount] = record(
    "amount",
    Member("before", optional(COUNT), lambda amount: amount.before),
    Member("after", optional(COUNT), lambda amount: amount.after),
)
_RESOURCE: Shape[ResourceChange] = record(
    "", Member("perNode", _AMOUNT, lambda one: one.per_node), Member("total", _AMOUNT, lambda one: one.total)
)
_INSTANCE: Shape[tuple[str, int]] = record(
    "instance", Member("profile", TEXT, lambda one: one[0]), Member("start", COUNT, lambda one: one[1])
)
_INSTANCES: Shape[Iterable[tuple[str, int]]] = array(_INSTANCE)
_GPU: Shape[GpuChange] = record(
    "",
    Member("gpu", COUNT, lambda gpu: gpu.index),
    Member("kept", _INSTANCES, lambda gpu: gpu.kept),
    Member("destroyed", _INSTANCES, lambda gpu: gpu.destroyed),
    Member("created", _INSTANCES, lambda gpu: gpu.created),
)
_CAP: Shape[CapChange] = record(
    "",
    Member("resource", _NAME, lambda cap: cap.resource),
    Member("profile", optional(TEXT), lambda cap: cap.profile, "MIG profile; null for a whole GPU."),
    Member("capMiB", _AMOUNT, lambda cap: cap.cap_mib),
)
_POOL: Shape[PoolChange] = record(
    "pool",
    Member("change", words(Change), lambda pool: pool.change),
    Member("card", _sides(optional(TEXT)), lambda pool: pool.cards),
    Member("nodes", _AMOUNT, lambda pool: pool.nodes),
    Member("nodesTouched", optional(COUNT), lambda pool: pool.touched),
    Member("podsDisturbed", optional(COUNT), lambda pool: pool.disturbed),
    Member("podsDisturbedPerNode", COUNT, lambda pool: pool.disturbed_per_node, "On one node that stays in the pool."),
    Member(
        "selectorChanges", FLAG, lambda pool: pool.selector_changes, "Whether other nodes may belong to the pool from now on."
    ),
    Member(
        "successor",
        optional(TEXT),
        lambda pool: pool.successor,
        "The new pool that selects exactly the nodes of this one, which is gone.",
    ),
    Member("resources", by_name(_RESOURCE), lambda pool: {one.name: one for one in pool.resources}),
    Member(
        "gpus",
        array(_GPU),
        lambda pool: pool.gpus,
        "MIG instances of one node, per GPU that has or gets any; empty where none is touched.",
    ),
    Member(
        "caps",
        array(_CAP),
        lambda pool: pool.caps,
        "What one container may use of each share, before and after; null: no cap, or the side does not offer the share.",
    ),
    Member(
        "action",
        _sides(optional(words(Action))),
        lambda pool: pool.actions,
        "What happens to a container above its cap; null: the side does not have the pool.",
    ),
)
_COSTS: Shape[CostChanges] = record(
    "",
    Member("currency", optional(TEXT), lambda costs: costs.currency, "Null if the prices name none."),
    Member("before", _COST, lambda costs: costs.before),
    Member("after", _COST, lambda costs: costs.after),
    Member("pools", by_name(_sides(_COST)), lambda costs: {one.pool: (one.before, one.after) for one in costs.pools}),
)
_MOVE: Shape[Move] = record(
    "",
    Member("node", TEXT, lambda move: move.node),
    Member("from", optional(TEXT), lambda move: move.source, "Pool; null for none."),
    Member("to", optional(TEXT), lambda move: move.target, "Pool; null for none."),
    Member("podsDisturbed", optional(COUNT), lambda move: move.disturbed),
)
_QUOTA: Shape[QuotaChange] = record(
    "",
    Member("namespace", TEXT, lambda quota: quota.namespace),
    Member("resource", _NAME, lambda quota: quota.resource),
    Member("before", optional(COUNT), lambda quota: quota.before, "null: no limit."),
    Member("after", optional(COUNT), lambda quota: quota.after, "null: no limit."),
    Member("capacity", optional(COUNT), lambda quota: quota.capacity, "What the cluster will offer."),
    Member(
        "problem",
        optional(words(Problem)),
        lambda quota: quota.problem,
        "exceeds: more than the cluster will offer; vanished: nothing offers the resource any more.",
    ),
)
_EFFECT: Shape[Effect] = record(
    "",
    Member("kind", words(EffectKind), lambda one: one.kind),
    Member("pool", optional(TEXT), lambda one: one.pool, "null: the whole cluster."),
    Member("subject", _NAME, lambda one: one.subject, "The setting."),
    Member("before", _ANY, lambda one: one.before, "Its value; null: none."),
    Member("after", _ANY, lambda one: one.after, "Its value; null: none."),
)
_OUTAGE: Shape[Outage] = record(
    "",
    *fields(Outage, "pool"),
    Member("nodes", optional(COUNT), lambda one: one.nodes),
    Member("atOnce", optional(COUNT), lambda one: one.at_once),
    Member("rounds", optional(COUNT), lambda one: one.rounds),
    Member(
        "secondsEach",
        COUNT,
        lambda one: one.seconds,
        "For one node without tenants in the way: measured on simulated GPUs.",
    ),
    Member("onBusy", words(OnBusy), lambda one: one.on_busy),
    Member(
        "paused",
        FLAG,
        lambda one: one.start is not None and one.start.is_paused,
        "Whether the pool's rollout is paused, so that no node changes.",
    ),
    Member(
        "opensAt",
        optional(_DATE),
        lambda one: one.start and one.start.opens_at,
        "When the next window opens, in UTC; null: nodes may change now, or the rollout is paused.",
    ),
    Member("drainSeconds", COUNT, lambda one: one.drain_seconds, "How long a node waits for tenants at most, in service."),
)
_KIND: Shape[FileKind] = Shape(schema=words(FileKind).schema, write=str, name="kind")
_SETTING: Shape[SettingChange] = record(
    "",
    Member("path", array(TEXT), lambda one: one.path, "Keys, and names of list entries."),
    Member("change", _KIND, lambda one: one.kind),
    Member("before", _ANY, lambda one: one.before, "The value; null: none."),
    Member("after", _ANY, lambda one: one.after, "The value; null: none."),
)
_SETTINGS: Shape[Iterable[SettingChange]] = array(_SETTING)
_FILE: Shape[FileDiff] = record(
    "",
    Member("path", _NAME, lambda one: one.path),
    Member("change", _KIND, lambda one: one.kind),
    Member("settings", _SETTINGS, lambda one: one.settings),
    Member("more", COUNT, lambda one: one.more, "Settings that are not listed."),
)
DOCUMENT: Document[Comparison] = Document(
    name="plan",
    kind="Plan",
    text="What changes when one intent or bundle replaces another: `gpushare plan OLD NEW --format json`. null: not known. "
    "Pods are upper bounds: every share that the change takes away may be in use.",
    members=(
        Member(
            "verdict",
            array(TEXT),
            verdict,
            "What running pods, new pods, quotas and nodes meet, a sentence each, worst first; empty if nothing changes.",
        ),
        Member(
            "summary",
            TEXT,
            comparison_words.format_summary,
            "One line for people: what happens to how many pools, nodes and pods.",
        ),
        Member(
            "changed",
            FLAG,
            lambda found: not found.is_empty,
            "Whether anything changes: false if and only if the two bundles are equal, comments aside.",
        ),
        Member(
            "configMapOnly",
            FLAG,
            lambda found: found.is_configmap_only,
            "Whether something changes, and that in ConfigMaps and raised quotas alone: no GPU, no label of a node, no pod "
            "that runs or will be created is affected.",
        ),
        Member(
            "nodesTouched",
            optional(COUNT),
            lambda found: found.touched,
            "Nodes whose GPUs or labels change; null where that is not known, as with another driver or the effect begins.",
        ),
        Member("podsDisturbed", optional(COUNT), lambda found: found.disturbed),
        Member("pools", by_name(_POOL), lambda found: {pool.name: pool for pool in found.pools}),
        Member("capacity", by_name(_AMOUNT), lambda found: dict(found.capacity), "Per resource, on the whole cluster."),
        Member(
            "cost",
            optional(_COSTS),
            lambda found: found.costs,
            "What an hour of the GPUs costs; null if no prices are known, or if they have several currencies. A number is null "
            "if the price or the number of nodes of a pool is not known.",
        ),
        Member(
            "operatorMigStrategy",
            _sides(_STRATEGY),
            lambda found: found.mig_strategies,
            "gpu-operator's one mig.strategy; empty where every profile states its own, null without gpu-operator. A change "
            "restarts the device plugin of every node at once.",
        ),
        Member("moves", array(_MOVE), lambda found: found.moves, "Nodes that are named in the intents and change pools."),
        Member("quotas", array(_QUOTA), lambda found: found.quotas, "Quotas that change or break."),
        Member(
            "effects",
            array(_EFFECT),
            lambda found: found.effects,
            "Who is affected besides layouts: caps, actions, admission, namespaces, the stack.",
        ),
        Member("outages", array(_OUTAGE), lambda found: found.outages, "Nodes that go out of service, by pool."),
        Member("order", array(TEXT), comparison_words.format_order, "Steps, where their order matters."),
        Member("files", array(_FILE), lambda found: found.files, "Every file of the bundle that differs."),
        Member("intent", _SETTINGS, lambda found: found.intent, "The fields that differ, where both sides are intents."),
    ),
)
