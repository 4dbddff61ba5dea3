"""Who is affected by other values, images and DeviceConfigs of AMD's stack, and by another stack or namespace of it. Pure."""

from collections.abc import Iterator, Mapping

from gpushare.compare import bundles
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files
from gpushare.compare.stack_effects import of_images
from gpushare.facts.vendors.amd import AMD
from gpushare.intent.stacks.amd import Amd

_VENDOR = Amd.vendor
_VALUES = {f"{stack}/values.yaml": stack for stack in AMD.charts}
_CONFIGS = "chart/files/amd/device-configs/"
_NAMING = ("devicePlugin", "devicePluginArguments", "resource_naming_strategy")


def of_amd(
    old: Files, new: Files, changed: tuple[FileDiff, ...], successors: Mapping[str, str], left: frozenset[str]
) -> Iterator[Effect]:
    """Yield the effects; of a chart of AMD's that is added none, because nothing of it runs yet."""
    yield from _withdrawn(old, new, successors, left)
    stacks = before, after = _stack(old), _stack(new)
    if before is None or after is None:
        if before in AMD.charts and bundles.values(new).get("adoption") != bundles.OBSERVE:
            yield Effect(kind=EffectKind.UNINSTALLED, pool=None, subject="amd.stack", before=before)
        return
    namespaces = [bundles.values(side).get(_VENDOR, {}).get("namespace") for side in (old, new)]
    for subject, (was, will) in (("amd.stack", stacks), ("amd.namespace", namespaces)):
        if was != will and not {before, after}.isdisjoint(AMD.charts):
            yield Effect(kind=EffectKind.AMD_REINSTALLED, pool=None, subject=subject, before=was, after=will)
        if was != will and subject == "amd.namespace":
            yield Effect(kind=EffectKind.RESTARTS, pool=None, subject=subject, before=was, after=will)
    if before == after:
        for change in changed:
            yield from _of_file(change)
        yield from of_images(EffectKind.AMD_UPSTREAM, *(bundles.images(side).others[_VENDOR] for side in (old, new)))


def _of_file(change: FileDiff) -> Iterator[Effect]:
    """Yield the effects of a changed file: AMD's operator gives a DeviceConfig to all nodes of its pool at once.

    What concerns images is reported of `images.txt`.
    """
    if change.path in _VALUES:
        for one in change.settings:
            yield Effect(
                kind=EffectKind.AMD_UPSTREAM, pool=None, subject=".".join(one.path), before=one.before, after=one.after
            )
    if not change.path.startswith(_CONFIGS):
        return
    pool = change.path.removeprefix(_CONFIGS).removesuffix(".yaml")
    for one in change.settings:
        if one.path == _NAMING:
            yield Effect(kind=EffectKind.RENAMED, pool=pool, subject=_NAMING[-1], before=one.before, after=one.after)
    parts = dict.fromkeys(one.path[0] for one in change.settings if one.path != _NAMING and not _is_image(one.path))
    if parts:
        yield Effect(kind=EffectKind.AMD_UPSTREAM, pool=pool, subject=f"DeviceConfig: {', '.join(parts)}")


def _is_image(path: tuple[str, ...]) -> bool:
    return path[-1].lower().endswith("image")


def _stack(files: Files) -> str | None:
    """Return AMD's stack; None without pools of AMD's cards, and where the bundle only observes them."""
    chart = next((stack for path, stack in _VALUES.items() if path in files), None)
    return chart or (
        bundles.EXISTING
        if bundles.pools_of(bundles.values(files), _VENDOR) and bundles.values(files).get("adoption") != bundles.OBSERVE
        else None
    )


def _withdrawn(old: Files, new: Files, successors: Mapping[str, str], left: frozenset[str]) -> Iterator[Effect]:
    """Yield the pools whose nodes AMD's programs leave: of pools that are gone, and of all where the new bundle only observes.

    The label of the vendor, by which the device plugin alone selects nodes, stays on nodes that go to another pool.
    """
    stack, after = _stack(old), bundles.values(new)
    if stack not in AMD.charts:
        return
    for name in sorted(bundles.pools_of(bundles.values(old), _VENDOR)):
        is_gone, is_selected = name not in bundles.pools_of(after, _VENDOR), f"{_CONFIGS}{name}.yaml" in old
        loses = is_gone or after.get("adoption") == bundles.OBSERVE if is_selected else is_gone and name not in successors
        if loses or name in left:
            yield Effect(kind=EffectKind.WITHDRAWN, pool=name, subject=stack or "")
