"""What `gpushare.lock.yaml` records of a bundle for the next compile: resolved goals, former configs and classes of nodes.

The lock is a declared input of the next compile, so the same intent and the same lock always give the same bytes. Owns the
type, its text, and how a current set of configs becomes a former one. A node is changed when its turn
comes: until then it may have a former config, and its GPUs are offered by a former DeviceClass. Reads no files.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gpushare import __version__
from gpushare.bundle.artifact import hexdigest, is_bundle_path
from gpushare.core import emit
from gpushare.core.diagnostics import Finding, Severity
from gpushare.intent.types import Layout
from gpushare.reading import schema, source
from gpushare_node.contract.policy import Vendor
from gpushare_node.contract.struct import NOTHING, Struct, replace

FILE = "gpushare.lock.yaml"
"""The lock's path in a bundle."""

INTENT = "intent.yaml"
"""The path of the intent that a bundle is made from, overlays merged: what reads a bundle reads it; its bundle is the same."""

MAX_BYTES = source.MAX_BYTES
"""The largest lock file that is read."""

GENERATIONS = 20
"""How many former sets of profiles are kept: a node that was offline for more changes than that must be relabelled by hand."""

_HEADER = "Written by gpushare: what the next compile must know, and what this bundle is.\nCommit it, and do not edit it."
_HINT = "restore it from version control, or delete the whole bundle: nodes that are away then lose their former profiles"

_HINT_LOST = "restore it from version control; nodes that are away would find no profile when they come back"


class GoalPin(Struct):
    """The layout that a pool's goal was resolved to. `question` is the digest of its inputs (card, goal, reserve)."""

    question: str
    layout: Layout


class ConfigHistory(Struct):
    """The configs of one program of nodes: `now`, by name, and `former` sets, newest first, which nodes may still have."""

    now: Mapping[str, Any] = NOTHING
    former: tuple[Mapping[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.now or self.former)

    def followed_by(self, now: Mapping[str, Any]) -> "ConfigHistory":
        """Return the history when `now` is in use. Former sets have no name that is repeated or in use; none is empty."""
        former, seen = [], set(now)
        for older in (self.now, *self.former):
            if kept := {name: config for name, config in older.items() if name not in seen}:
                former.append(kept)
            seen |= set(kept)
        return ConfigHistory(now=now, former=tuple(former[:GENERATIONS]))

    def every(self) -> dict[str, Any]:
        """Return every config that a node may still use, by name: the current set and the former ones."""
        merged: dict[str, Any] = {}
        for configs in (*reversed(self.former), self.now):
            merged |= configs
        return _in_order(merged)


class Lock(Struct):
    """`files` maps bundle paths to digests.

    Configs by name: `profiles` are NVIDIA's device plugin's, by key, `mig_configs` mig-parted's, `vgpu_configs` the vGPU device
    manager's, `manager_configs` those of another vendor's own partitioner.

    `vendors`: whose GPUs other than NVIDIA's nodes have, or had: what releases a node is made for its vendor. `stacks`: the
    stack of such cards and its namespace, by vendor, which stay when no pool has such cards any more. `dra`: the namespace of
    NVIDIA's DRA driver, and what nodes need that wait for their turn: every DeviceClass that a bundle has had, and settings of
    the driver.
    """

    intent: str = ""
    files: Mapping[str, str] = NOTHING
    goals: Mapping[str, GoalPin] = NOTHING
    profiles: ConfigHistory = ConfigHistory()
    mig_configs: ConfigHistory = ConfigHistory()
    vgpu_configs: ConfigHistory = ConfigHistory()
    manager_configs: ConfigHistory = ConfigHistory()
    vendors: tuple[str, ...] = ()
    stacks: Mapping[str, Mapping[str, str]] = NOTHING
    dra: Mapping[str, Any] = NOTHING

    @property
    def has_dra(self) -> bool:
        """Whether NVIDIA's DRA driver serves nodes, or did: then its device plugin keeps to the nodes that have its label."""
        return bool(self.dra)


EMPTY = Lock()


def read(data: bytes, file: str = FILE) -> Lock | Finding:
    """Return the lock in the bytes of a file, or GS790 at the first thing in it that gpushare never writes."""
    document = source.read(data, file)
    if document.findings:
        first = document.findings[0]
        return replace(_broken(first.message), file=file, span=first.span)
    if not schema.accepts(schema.load("lock.v1"), document.data):
        first = schema.violations(document.data, "lock.v1", ())[0]
        return document.locate(replace(_broken(first.message), path=first.path, on_key=first.on_key))
    for path in document.data["files"]:
        if not is_bundle_path(path):
            stray = _broken(f"invalid path {path[:100]!r} in a bundle")
            return document.locate(replace(stray, path=("files", path), on_key=True))
    return _lock(document.data)


def lost(file: str) -> Finding:
    """Return GS791: a bundle without its lock."""
    message = f"the bundle has lost its {FILE}: goals are resolved again, and profiles of earlier bundles are forgotten"
    return Finding(code="GS791", severity=Severity.WARNING, message=message, hints=(_HINT_LOST,), file=file)


def edited(lock: Lock, intent: bytes, file: str) -> Finding | None:
    """Return GS796 if the intent in a bundle is not the one that the lock lists, or the lock lists none."""
    listed = lock.files.get(INTENT)
    if listed == f"sha256:{hexdigest(intent)}":
        return None
    reason = f"{FILE} does not list it" if listed is None else "it was edited"
    message = f"nothing shows that the bundle was made from {INTENT}: {reason}; it is read as it is now"
    hint = "compile the intent again, or restore the file from version control"
    return Finding(code="GS796", severity=Severity.WARNING, message=message, hints=(hint,), file=file)


def _broken(reason: str) -> Finding:
    return Finding(code="GS790", message=f"{FILE} cannot be read: {reason}", hints=(_HINT,))


_HISTORIES = {
    "profiles": ("profiles", "formerProfiles"),
    "mig_configs": ("migConfigs", "formerMigConfigs"),
    "vgpu_configs": ("vgpuConfigs", "formerVgpuConfigs"),
    "manager_configs": ("managerConfigs", "formerManagerConfigs"),
}
"""The fields of the file with a history: its current set, and the former ones. Those of vGPUs and of managers may be absent."""


def _lock(document: Mapping[str, Any]) -> Lock:
    goals = document["goals"].items()
    histories = {
        name: ConfigHistory(now=document.get(now, {}), former=tuple(document.get(former, ())))
        for name, (now, former) in _HISTORIES.items()
    }
    return Lock(
        intent=document["intent"],
        files=document["files"],
        goals={pool: GoalPin(question=pin["question"], layout=tuple(pin["layout"].items())) for pool, pin in goals},
        **histories,
        vendors=tuple(document.get("vendors", ())),
        stacks={vendor.value: document[vendor.value] for vendor in Vendor if vendor.value in document},
        dra=document.get("dra", {}),
    )


def text(lock: Lock) -> str:
    """Return the text of the lock file. `read` returns an equal lock for it."""
    goals = {pool: {"question": pin.question, "layout": dict(pin.layout)} for pool, pin in sorted(lock.goals.items())}
    of_vendors = {"vendors": list(lock.vendors), **{name: _in_order(stack) for name, stack in lock.stacks.items()}}
    document = {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Lock",
        "gpushare": __version__,
        "intent": lock.intent,
        "goals": goals,
        **_written(lock, "profiles"),
        **_written(lock, "mig_configs"),
        # What a cluster without vGPUs, with NVIDIA's GPUs alone or without the DRA driver does not have.
        **(_written(lock, "vgpu_configs") if lock.vgpu_configs else {}),
        **(of_vendors | _written(lock, "manager_configs") if lock.vendors else {}),
        **({"dra": dict(lock.dra) | {"classes": _in_order(lock.dra["classes"])}} if lock.has_dra else {}),
        "files": _in_order(lock.files),
    }
    return emit.yaml_text(document, _HEADER)


def _written(lock: Lock, name: str) -> dict[str, Any]:
    history, (now, former) = getattr(lock, name), _HISTORIES[name]
    return {now: _in_order(history.now), former: [_in_order(older) for older in history.former]}


def _in_order(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(mapping.items()))


def advance(  # noqa: PLR0913 - the parts of a lock
    before: Lock,
    *,
    intent: str,
    goals: Mapping[str, GoalPin],
    configs: Mapping[str, Mapping[str, Any]],
    vendors: Iterable[str] = (),
    stacks: Mapping[str, Mapping[str, str]] = NOTHING,
    dra: Mapping[str, Any] = NOTHING,
) -> Lock:
    """Return the next bundle's lock, without its files. `configs` are the current sets, by the name of their field in Lock."""
    return Lock(
        intent=intent,
        goals=goals,
        **{name: getattr(before, name).followed_by(configs.get(name, {})) for name in _HISTORIES},
        vendors=tuple(sorted({*before.vendors, *vendors})),
        stacks={**before.stacks, **stacks},
        dra=_of_dra(dra, before.dra),
    )


def _of_dra(now: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is known of the DRA driver: nothing of it goes, because nothing tells when the last node has changed."""
    if not now and not before:
        return NOTHING
    both = [*before.get("tolerations", ()), *now.get("tolerations", ())]
    tolerations = [one for number, one in enumerate(both) if one not in both[:number]]
    return {**before, **now, "classes": before.get("classes", {}) | now.get("classes", {}), "tolerations": tolerations}


_OF_POOL = ("limited.", "namespace.")
"""With which the lookups begin that a pool of the intent has itself."""


class FormerClasses(Struct):
    """`classes` are entries of the lock by the name of the class; `driver_namespace`: where the driver's pods run, if known."""

    driver_namespace: str = ""
    classes: Mapping[str, Any] = NOTHING

    def specs(self) -> dict[str, Any]:
        """Return what the chart makes of each class."""
        return {name: {"pool": entry["pool"], "spec": entry["spec"]} for name, entry in sorted(self.classes.items())}

    def lookups(self, pools: Collection[str]) -> dict[str, str]:
        """Return what the admission policies look up of the classes. `pools` are those of the intent."""
        found: dict[str, str] = {}
        for _, entry in sorted(self.classes.items()):
            for key, text in entry["lookups"].items():
                if entry["pool"] in pools and key.startswith(_OF_POOL):
                    continue
                is_list = key.startswith("namespace.") and text not in found.get(key, "").split()
                found[key] = f"{found.get(key, '')} {text}".strip() if is_list else found.get(key, text)
        return dict(sorted(found.items()))

    def quotas(self, namespace: str, key: str) -> dict[str, int]:
        """Return of how many devices a namespace may have claims. `key` is what a ResourceQuota adds to the name of a class."""
        numbers = {name: entry["quotas"].get(namespace) for name, entry in self.classes.items()}
        return {f"{name}{key}": number for name, number in numbers.items() if number is not None}


def former(dra: Mapping[str, Any], current: Collection[str]) -> FormerClasses:
    """Return the classes of a lock's `dra` that are not among those that the pools of the intent have."""
    classes = {name: entry for name, entry in dra.get("classes", {}).items() if name not in current}
    return FormerClasses(driver_namespace=dra.get("driverNamespace", ""), classes=classes)
