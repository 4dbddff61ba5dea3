"""What a bundle records for the next compile in `gpushare.lock.yaml`: resolved goals and former device-plugin profiles.

The lock is a declared input of the next compile, so the same intent and the same lock always give the same bytes. Owns the
type, its text, and how a current set of profiles becomes a former one. Reads no files.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpushare import __version__
from gpushare.bundle.artifact import hexdigest, is_bundle_path
from gpushare.core import emit
from gpushare.core.diagnostics import Finding, Severity
from gpushare.intent.types import Layout
from gpushare.reading import schema, source
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


class Lock(Struct):
    """`files` maps bundle paths to digests; `profiles` is the current set (key → config), `former` older sets, newest first.

    `vendors`: whose GPUs other than NVIDIA's nodes have, or had: what releases a node is made for its vendor. `amd`: the stack
    of AMD's cards and its namespace, which stay when no pool has such cards any more. `dra`: the namespace of NVIDIA's DRA
    driver, and what nodes need that wait for their turn: every DeviceClass that a bundle has had, and settings of the driver.
    """

    intent: str = ""
    files: Mapping[str, str] = NOTHING
    goals: Mapping[str, GoalPin] = NOTHING
    profiles: Mapping[str, Any] = NOTHING
    former: tuple[Mapping[str, Any], ...] = ()
    mig_configs: Mapping[str, Any] = NOTHING
    former_mig_configs: tuple[Mapping[str, Any], ...] = ()
    vgpu_configs: Mapping[str, Any] = NOTHING
    former_vgpu_configs: tuple[Mapping[str, Any], ...] = ()
    manager_configs: Mapping[str, Any] = NOTHING
    former_manager_configs: tuple[Mapping[str, Any], ...] = ()
    vendors: tuple[str, ...] = ()
    amd: Mapping[str, str] = NOTHING
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


def _lock(document: Mapping[str, Any]) -> Lock:
    goals = document["goals"].items()
    return Lock(
        intent=document["intent"],
        files=document["files"],
        goals={pool: GoalPin(question=pin["question"], layout=tuple(pin["layout"].items())) for pool, pin in goals},
        profiles=document["profiles"],
        former=tuple(document["formerProfiles"]),
        mig_configs=document["migConfigs"],
        former_mig_configs=tuple(document["formerMigConfigs"]),
        vgpu_configs=document.get("vgpuConfigs", {}),
        former_vgpu_configs=tuple(document.get("formerVgpuConfigs", ())),
        manager_configs=document.get("managerConfigs", {}),
        former_manager_configs=tuple(document.get("formerManagerConfigs", ())),
        vendors=tuple(document.get("vendors", ())),
        amd=document.get("amd", {}),
        dra=document.get("dra", {}),
    )


def text(lock: Lock) -> str:
    """Return the text of the lock file. `read` returns an equal lock for it."""
    goals = {pool: {"question": pin.question, "layout": dict(pin.layout)} for pool, pin in sorted(lock.goals.items())}
    document = {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Lock",
        "gpushare": __version__,
        "intent": lock.intent,
        "goals": goals,
        "profiles": _in_order(lock.profiles),
        "formerProfiles": [_in_order(older) for older in lock.former],
        "migConfigs": _in_order(lock.mig_configs),
        "formerMigConfigs": [_in_order(older) for older in lock.former_mig_configs],
        **_of_vgpus(lock),
        **_of_vendors(lock),
        **({"dra": dict(lock.dra) | {"classes": _in_order(lock.dra["classes"])}} if lock.has_dra else {}),
        "files": _in_order(lock.files),
    }
    return emit.yaml_text(document, _HEADER)


def _of_vgpus(lock: Lock) -> dict[str, Any]:
    """Return the fields that a cluster without vGPUs does not have."""
    if not lock.vgpu_configs and not lock.former_vgpu_configs:
        return {}
    return {
        "vgpuConfigs": _in_order(lock.vgpu_configs),
        "formerVgpuConfigs": [_in_order(older) for older in lock.former_vgpu_configs],
    }


def _of_vendors(lock: Lock) -> dict[str, Any]:
    """Return the fields that a cluster with NVIDIA's GPUs alone does not have."""
    if not lock.vendors:
        return {}
    return {
        "vendors": list(lock.vendors),
        **({"amd": _in_order(lock.amd)} if lock.amd else {}),
        "managerConfigs": _in_order(lock.manager_configs),
        "formerManagerConfigs": [_in_order(older) for older in lock.former_manager_configs],
    }


def _in_order(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(mapping.items()))


def advance(  # noqa: PLR0913 - the parts of a lock
    before: Lock,
    *,
    intent: str,
    goals: Mapping[str, GoalPin],
    profiles: Mapping[str, Any],
    mig_configs: Mapping[str, Any],
    vgpu_configs: Mapping[str, Any] = NOTHING,
    manager_configs: Mapping[str, Any] = NOTHING,
    vendors: Iterable[str] = (),
    amd: Mapping[str, str] = NOTHING,
    dra: Mapping[str, Any] = NOTHING,
) -> Lock:
    """Return the next bundle's lock, without its files: where a set of names changed, the previous set becomes a former one."""
    return Lock(
        intent=intent,
        goals=goals,
        profiles=profiles,
        former=_former(profiles, before.profiles, before.former),
        mig_configs=mig_configs,
        former_mig_configs=_former(mig_configs, before.mig_configs, before.former_mig_configs),
        vgpu_configs=vgpu_configs,
        former_vgpu_configs=_former(vgpu_configs, before.vgpu_configs, before.former_vgpu_configs),
        manager_configs=manager_configs,
        former_manager_configs=_former(manager_configs, before.manager_configs, before.former_manager_configs),
        vendors=tuple(sorted({*before.vendors, *vendors})),
        amd=amd or before.amd,
        dra=_of_dra(dra, before.dra),
    )


def _of_dra(now: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is known of the DRA driver: nothing of it goes, because nothing tells when the last node has changed."""
    if not now and not before:
        return NOTHING
    both = [*before.get("tolerations", ()), *now.get("tolerations", ())]
    tolerations = [one for number, one in enumerate(both) if one not in both[:number]]
    return {**before, **now, "classes": before.get("classes", {}) | now.get("classes", {}), "tolerations": tolerations}


def _former(
    now: Mapping[str, Any], before: Mapping[str, Any], older: tuple[Mapping[str, Any], ...]
) -> tuple[Mapping[str, Any], ...]:
    """Return the former sets, newest first, without names that are repeated or in use and without sets that this empties."""
    return tuple(_newest(set(now), (before, *older)))[:GENERATIONS]


def _newest(seen: set[str], sets: tuple[Mapping[str, Any], ...]) -> Iterator[Mapping[str, Any]]:
    for older in sets:
        kept = {name: config for name, config in older.items() if name not in seen}
        seen |= set(kept)
        if kept:
            yield kept


def all_profiles(lock: Lock) -> dict[str, Any]:
    """Return every device-plugin config that a node may still use, by key: the current set and the former ones."""
    return _merged(lock.profiles, lock.former)


def all_mig_configs(lock: Lock) -> dict[str, Any]:
    """Return every mig-parted config that a node may still use, by name."""
    return _merged(lock.mig_configs, lock.former_mig_configs)


def all_vgpu_configs(lock: Lock) -> dict[str, Any]:
    """Return every config of the vGPU device manager that a node may still use, by name."""
    return _merged(lock.vgpu_configs, lock.former_vgpu_configs)


def all_manager_configs(lock: Lock) -> dict[str, Any]:
    """Return every profile of AMD's config manager that a node may still use, by name."""
    return _merged(lock.manager_configs, lock.former_manager_configs)


def _merged(now: Mapping[str, Any], older: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for configs in (*reversed(older), now):
        merged |= configs
    return _in_order(merged)
