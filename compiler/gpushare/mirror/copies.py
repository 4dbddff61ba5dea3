"""From the images and the chart of a bundle to copies: one source and one target each, with the nodes' systems filled in.

Pure. Nothing here knows whether an image exists.
"""

from collections.abc import Iterable

from gpushare.catalog.image_registry import mirrored
from gpushare.catalog.upstream import OCI
from gpushare.core.patterns import pattern
from gpushare.core.record import Record
from gpushare.render.images import Chart, Pulled

_REGISTRY = pattern(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_TAG_PART = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}")


class Copy(Record):
    """One image to copy. `part`: who names it; `source`: where it is published; `target`: where the nodes pull it."""

    part: str
    source: str
    target: str


class ChartCopy(Record):
    """One chart to copy: its name and version, the repository that has it, and the repository or registry of the copy."""

    name: str
    version: str
    source: str
    target: str

    @property
    def reference(self) -> str:
        """The copy in a registry as a reference, without `oci://`; empty if the target is not a registry. A tag has no `+`."""
        if not self.target.startswith(OCI):
            return ""
        return f"{self.target.removeprefix(OCI)}/{self.name}:{self.version.replace('+', '_')}"


def chart_copy(chart: Chart | None, to: str | None) -> ChartCopy | None:
    """Return the copy of a bundle's chart; `to`, the address of a registry, replaces the target that the bundle names."""
    if chart is None:
        return None
    return ChartCopy(name=chart.name, version=chart.version, source=chart.source, target=to or chart.used)


def is_registry(text: str) -> bool:
    """Whether the text can be a target: a host, perhaps with a port and a path in lower case, without a scheme."""
    return _REGISTRY.fullmatch(text) is not None and len(text) <= 200


def is_tag_part(text: str) -> bool:
    """Whether the text can be part of a tag, as the name of a system or a kernel is."""
    return _TAG_PART.fullmatch(text) is not None


def copies(
    images: Iterable[Pulled], to: str | None, systems: tuple[str, ...], kernels: tuple[str, ...]
) -> tuple[tuple[Copy, ...], tuple[str, ...]]:
    """Return the copies, each target once, and the sources that have no complete tag without more systems or kernels.

    `to` replaces the registry of every target; None: the target is what the bundle names. `systems` are the suffixes that
    the operator appends, such as `ubuntu24.04`, and `kernels` the nodes' kernels, for precompiled drivers.
    """
    found: dict[str, Copy] = {}
    incomplete = []
    for image in images:
        suffixes = _suffixes(image, systems, kernels)
        if not suffixes:
            incomplete.append(image.source)
        for suffix in suffixes:
            source = image.source + suffix
            target = (_moved(image.source, to) if to else image.used) + suffix
            found.setdefault(target, Copy(part=image.part, source=source, target=target))
    return tuple(found.values()), tuple(dict.fromkeys(incomplete))


def _suffixes(image: Pulled, systems: tuple[str, ...], kernels: tuple[str, ...]) -> tuple[str, ...]:
    if not image.per_system:
        return ("",)
    if image.precompiled:
        return tuple(f"-{kernel}-{system}" for system in systems for kernel in kernels)
    return tuple(f"-{system}" for system in systems)


def _moved(reference: str, to: str) -> str:
    """Return the reference under another registry. Its tag or digest is kept."""
    return mirrored(reference, to)
