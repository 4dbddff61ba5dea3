"""Who is affected by another back end of a pool, by changed device classes, and by other values of the DRA driver. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.compare import bundles
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files, parsed
from gpushare.compare.snapshots import Pools
from gpushare.compare.stack_effects import of_images

_VALUES = "dra-driver-nvidia-gpu/values.yaml"
_CLASSES = "chart/files/dra/"
_FORMER = "chart/files/former-classes.yaml"


def of_backends(before: Pools, after: Pools, successors: Mapping[str, str]) -> Iterator[Effect]:
    """Yield the pools whose nodes change hands, one node after the other, and those whose claims get another interval."""
    for name, old in sorted(before.items()):
        new = after.get(successors.get(name, name))
        if new is None:
            continue
        if old.backend != new.backend:
            yield _effect(EffectKind.BACKEND, name, "backend", old.backend, new.backend)
        elif old.interval != new.interval and old.mode == new.mode:  # pods of two modes share no GPU
            yield _effect(EffectKind.INTERVAL, name, "interval", old.interval, new.interval)


def of_dra(old: Files, new: Files, changed: tuple[FileDiff, ...]) -> Iterator[Effect]:
    """Yield the effects of changed files; of a driver that is added none, because nothing of it runs yet."""
    if _VALUES in old and _VALUES not in new and bundles.values(new).get("adoption") != bundles.OBSERVE:
        yield Effect(kind=EffectKind.UNINSTALLED, pool=None, subject="dra", before="dra-driver-nvidia-gpu")
    yield from _of_left(old, new)
    for change in changed:
        if change.path == _VALUES and _VALUES in old and _VALUES in new:
            for one in change.settings:
                yield _effect(EffectKind.DRA_UPSTREAM, None, ".".join(one.path), one.before, one.after)
        if change.path == bundles.IMAGES and _VALUES in old and _VALUES in new:
            yield from of_images(EffectKind.DRA_UPSTREAM, *(bundles.images(side).dra for side in (old, new)))
        if change.path.startswith(_CLASSES) and change.path in old and change.path in new:
            pool = change.path.removeprefix(_CLASSES).removesuffix(".yaml")
            for one in change.settings:
                if one.path[0] == "classes" and one.path[2:3] != ("config",):
                    yield _effect(
                        EffectKind.CLASSES, pool, one.path[1] if len(one.path) > 1 else "classes", one.before, one.after
                    )


def _of_left(old: Files, new: Files) -> Iterator[Effect]:
    """Yield the classes that no pool has any more."""
    before, after = (parsed(_FORMER, side[_FORMER]) if _FORMER in side else {} for side in (old, new))
    for name in sorted(after.keys() - before.keys()):
        yield _effect(EffectKind.CLASS_KEPT, after[name]["pool"], name, None, None)


def _effect(kind: EffectKind, pool: str | None, subject: str, before: Any, after: Any) -> Effect:
    return Effect(kind=kind, pool=pool, subject=subject, before=before, after=after)
