"""Who is affected by other values, images and objects of another vendor's stack, and by another stack or namespace of it. Pure.

The vendor is one other than NVIDIA: its objects are those that its operator reads, such as AMD's DeviceConfigs.
"""

from collections.abc import Iterator, Mapping

from gpushare.compare import bundles
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files
from gpushare.compare.stack_effects import of_images
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract.struct import replace


def of_vendor(
    vendor: GpuVendor,
    both: tuple[Files, Files],
    changed: tuple[FileDiff, ...],
    successors: Mapping[str, str],
    left: frozenset[str],
) -> Iterator[Effect]:
    """Yield the effects on the vendor's stack; of a chart of it that is added none, because nothing of it runs yet."""
    old, new = both
    word = vendor.word.value
    yield from _withdrawn(vendor, old, new, successors, left)
    stacks = before, after = _stack(vendor, old), _stack(vendor, new)
    if before is None or after is None:
        if before in vendor.charts and bundles.values(new).get("adoption") != bundles.OBSERVE:
            yield Effect(kind=EffectKind.UNINSTALLED, pool=None, subject=f"{word}.stack", before=before)
        return
    namespaces = [bundles.namespace(bundles.values(side), word) for side in both]
    for subject, (was, will) in ((f"{word}.stack", stacks), (f"{word}.namespace", namespaces)):
        if was != will and not {before, after}.isdisjoint(vendor.charts):
            yield Effect(kind=EffectKind.VENDOR_REINSTALLED, pool=None, subject=subject, before=was, after=will, vendor=word)
        if was != will and subject == f"{word}.namespace":
            yield Effect(kind=EffectKind.RESTARTS, pool=None, subject=subject, before=was, after=will)
    if before == after:
        for change in changed:
            yield from _of_file(vendor, change)
        for one in of_images(EffectKind.VENDOR_UPSTREAM, *(bundles.images(side).others[word] for side in both)):
            yield replace(one, vendor=word)


def _of_file(vendor: GpuVendor, change: FileDiff) -> Iterator[Effect]:
    """Yield the effects of a changed file: the operator gives an object to all nodes of its pool at once.

    What concerns images is reported of `images.txt`.
    """
    word = vendor.word.value
    if change.path in _values(vendor):
        for one in change.settings:
            yield Effect(
                kind=EffectKind.VENDOR_UPSTREAM,
                pool=None,
                subject=".".join(one.path),
                before=one.before,
                after=one.after,
                vendor=word,
            )
    objects = vendor.operator_objects
    if objects is None or not change.path.startswith(objects.specs):
        return
    pool = change.path.removeprefix(objects.specs).removesuffix(".yaml")
    for one in change.settings:
        if one.path == objects.naming:
            yield Effect(
                kind=EffectKind.RENAMED, pool=pool, subject=one.path[-1], before=one.before, after=one.after, vendor=word
            )
    parts = dict.fromkeys(one.path[0] for one in change.settings if one.path != objects.naming and not _is_image(one.path))
    if parts:
        subject = f"{objects.kind}: {', '.join(parts)}"
        yield Effect(kind=EffectKind.VENDOR_UPSTREAM, pool=pool, subject=subject, vendor=word)


def _is_image(path: tuple[str, ...]) -> bool:
    return path[-1].lower().endswith("image")


def _values(vendor: GpuVendor) -> Mapping[str, str]:
    """Return the stack by the path of its chart's values."""
    return {f"{stack}/values.yaml": stack for stack in vendor.charts}


def _stack(vendor: GpuVendor, files: Files) -> str | None:
    """Return the vendor's stack; None without pools of its cards, and where the bundle only observes them."""
    chart = next((stack for path, stack in _values(vendor).items() if path in files), None)
    return chart or (
        bundles.EXISTING
        if bundles.pools_of(bundles.values(files), vendor.word) and bundles.values(files).get("adoption") != bundles.OBSERVE
        else None
    )


def _withdrawn(
    vendor: GpuVendor, old: Files, new: Files, successors: Mapping[str, str], left: frozenset[str]
) -> Iterator[Effect]:
    """Yield the pools whose nodes its programs leave: of pools that are gone, and of all where the new bundle only observes.

    The label of the vendor, by which the device plugin alone selects nodes, stays on nodes that go to another pool.
    """
    word, objects = vendor.word.value, vendor.operator_objects
    stack, after = _stack(vendor, old), bundles.values(new)
    if stack not in vendor.charts:
        return
    for name in sorted(bundles.pools_of(bundles.values(old), word)):
        is_gone = name not in bundles.pools_of(after, word)
        is_selected = objects is not None and f"{objects.specs}{name}.yaml" in old
        loses = is_gone or after.get("adoption") == bundles.OBSERVE if is_selected else is_gone and name not in successors
        if loses or name in left:
            yield Effect(kind=EffectKind.WITHDRAWN, pool=name, subject=stack or "", vendor=word)
