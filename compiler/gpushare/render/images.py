"""`images.txt`: every image that the bundle runs, one per line, with the registry replaced, and NVIDIA's chart as a comment.

Upstream images are those of operands that are enabled in the final values. Tags are known for the newest chart only; for an
older chart the file states that, and how to get them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.image_registry import NODE_IMAGE, example_image, hostless, mirrored, reference
from gpushare.facts.catalog.upstream import HEADINGS, OF_DRA, OF_SUBCHARTS, Image, UpstreamChart
from gpushare.intent.types import Platform
from gpushare.resolved.plan import Plan
from gpushare.vendors import VENDORS
from gpushare_node.contract.struct import Struct

_DRIVER_NOTE = "# The operator appends the node's system to the driver's tag, as in -ubuntu24.04: copy that of your nodes."

_VGPU_NOTE = "# NVIDIA's vGPU manager, which you build; the operator appends the node's system here too."

_PER_SYSTEM = ("driver", "gds", "gdrcopy")
"""Sections with kernel modules: the operator appends the node's system to their tags."""


class Pulled(Struct):
    """One image: who names it (`gpushare`, `example` or the chart's section), where it is published, where the nodes pull it.

    A `source` without a host is unknown: nothing in the bundle says where that image is published.
    `per_system`: the operator appends the node's system to the tag; `precompiled`: and before it the node's kernel.
    """

    part: str
    source: str
    used: str
    per_system: bool = False
    precompiled: bool = False


class ChartSource(Struct):
    """An upstream chart of a bundle: the repository that publishes it, and the one that the bundle's commands name."""

    name: str
    version: str
    source: str
    used: str


_CHART = r"(?m)^# The chart: helm pull (?:(oci://\S+)/)?(\S+?)(?: --repo (\S+))? --version (\S+)$"

_DRA_CHART = rf"(?m)^{OF_DRA}: helm pull (?:(oci://\S+)/)?(\S+?)(?: --repo (\S+))? --version (\S+)\n(\S+)$"

_VENDOR_CHART = r": helm pull (\S+) --repo (\S+) --version (\S+)\n"


def chart_of(text: str, stack: str) -> ChartSource | None:
    """Return the chart that the images.txt of a bundle with this stack names; None without one."""
    found = re.search(_CHART, text)
    if found is None:
        return None
    registry, name, repository, version = found.groups()
    published = upstream.chart(stack).repository
    return ChartSource(name=name, version=version, source=published, used=registry or repository or published)


def dra_of(text: str) -> tuple[ChartSource, Pulled] | None:
    """Return the chart of NVIDIA's DRA driver that the images.txt of a bundle names, and its image; None without them."""
    found = re.search(_DRA_CHART, text)
    if found is None:
        return None
    registry, name, repository, version, used = found.groups()
    chart = upstream.chart(upstream.DRA)
    (image,) = chart.images
    source = f"{image.values['image.repository']}:{used.rpartition(':')[2]}"
    of_chart = ChartSource(name=name, version=version, source=chart.repository, used=registry or repository or chart.repository)
    return of_chart, Pulled(part="dra", source=source, used=used)


def own(chart_values: Mapping[str, Any]) -> tuple[Pulled, ...]:
    """Return the node runtime's image and that of the README's pods; of a bundle that observes the first alone.

    The source of the first has no host where the intent names none (platform.registry forbids it, GS726), nor for the default
    repository: nothing of ours is published there, and a stranger who takes that name would publish for the nodes.
    """
    image = chart_values["image"]
    repository = hostless(NODE_IMAGE) if image["repository"] == NODE_IMAGE else image["repository"]
    source = reference({**image, "registry": "", "repository": repository})
    runtime = Pulled(part="gpushare", source=source, used=reference(image))
    if chart_values.get("adoption") == "observe":
        return (runtime,)
    return runtime, Pulled(part="example", source=example_image(None), used=example_image(image.get("registry") or None))


def of_chart(stack: str, values: Mapping[str, Any], registry: str | None) -> tuple[Pulled, ...]:
    """Return the images that NVIDIA's chart of a stack runs with these values, at the release whose images are known."""
    chart = upstream.chart(stack)
    return tuple(
        Pulled(
            part=image.section,
            source=_source(image, chart, values, registry),
            used=_reference(image, chart, values),
            per_system=image.section in _PER_SYSTEM and "@" not in _reference(image, chart, values),
            precompiled=image.section == "driver" and _at(values, "driver.usePrecompiled") is True,
        )
        for image in chart.images
        if _runs(image, chart, values)
    )


class VendorImages(Struct):
    """What images.txt says of the chart of another vendor than NVIDIA. `lists`: the command that lists those of subcharts."""

    chart: ChartSource
    pulled: tuple[Pulled, ...]
    lists: str


def of_vendors(text: str) -> Iterator[VendorImages]:
    """Yield the chart of each other vendor that the images.txt of a bundle lists."""
    for vendor in HEADINGS:
        listed = upstream.listed(text, vendor)
        if found := re.match(_VENDOR_CHART, listed):
            name, repository, version = found.groups()
            images = [one for stack in VENDORS[vendor].charts for one in upstream.vendor_chart(stack).images.values()]
            published = {f"/{hostless(path)}": path for path in (one.rpartition(":")[0] for one in images) if path}
            lines = listed.splitlines()
            used = [line for line in lines if line and not line.startswith(("#", ":"))]
            yield VendorImages(
                chart=ChartSource(name=name, version=version, source=repository, used=repository),
                pulled=tuple(Pulled(part=vendor, source=_published(line, published), used=line) for line in used),
                lists=next((line for line in lines if line.startswith(OF_SUBCHARTS)), "").partition(": ")[2],
            )


def _published(reference: str, published: Mapping[str, str]) -> str:
    """Return the reference in the repository that publishes it; one of a repository that the user wrote as it is."""
    repository, _, tag = reference.rpartition(":")
    return next((f"{one}:{tag}" for name, one in published.items() if repository.endswith(name)), reference)


def _source(image: Image, chart: UpstreamChart, values: Mapping[str, Any], registry: str | None) -> str:
    """Return the reference at its publisher; of a repository that the user wrote the reference as it is."""
    path = f"{image.section}.repository"
    if _at(values, path) not in (None, mirrored(image.values[path], registry)):
        return _reference(image, chart, values)
    return _reference(image, chart, values, published=path)


def images(plan: Plan, values: Mapping[str, Any], chart_values: Mapping[str, Any]) -> str:
    """Return the file's text. `values` are those of the upstream chart, `chart_values` those of ours."""
    platform = plan.intent.platform
    lines = ["# Every image of this bundle.", reference(chart_values["image"])]
    if plan.intent.observes:
        return "\n".join(lines) + "\n"
    lines += ["# The pods in its README", example_image(platform.registry)]
    if platform.installs_chart:
        chart = upstream.chart(platform.stack.value)
        lines += _of_chart(chart, platform, values)
    if manager := platform.vgpu_manager:
        lines += [_VGPU_NOTE, f"{manager.repository}/{manager.image or 'vgpu-manager'}:{manager.version}"]
    return "\n".join(lines) + "\n"


def _of_chart(chart: UpstreamChart, platform: Platform, values: Mapping[str, Any]) -> Iterator[str]:
    version = platform.version or chart.version
    yield f"# The chart: helm pull {chart.helm_reference(platform.charts)} --version {version}"
    if version != chart.version:
        yield f"# {chart.name} {version}: gpushare knows only the tags of {chart.version}. This lists them:"
        yield f"#   helm show values {chart.helm_reference(platform.charts)} --version {version}"
        return
    yield f"# {chart.name} {version}"
    running = [image for image in chart.images if _runs(image, chart, values)]
    if any(image.section == "driver" for image in running):
        yield _DRIVER_NOTE
    yield from dict.fromkeys(_reference(image, chart, values) for image in running)


def _runs(image: Image, chart: UpstreamChart, values: Mapping[str, Any]) -> bool:
    """Whether the operand is enabled: by the values, else by the chart's default."""
    part = image.section.partition(".")[0]
    if part in chart.subcharts:  # node feature discovery, which both charts install unless it is disabled
        return _at(values, "nfd.enabled") is not False
    wanted = _at(values, f"{part}.enabled")
    if wanted is None:
        return image.installed
    # The image of the vGPU manager itself is not the chart's: the one below it belongs to the part.
    is_whole = image.section == part or all(one.section != part for one in chart.images)
    return bool(wanted) and (image.installed or is_whole)


def _reference(image: Image, chart: UpstreamChart, values: Mapping[str, Any], published: str = "") -> str:
    """Return what the chart makes of the values; the value at the path `published` is the chart's default."""
    chosen = {
        path: default if path == published else str(_at(values, path) or default) for path, default in image.values.items()
    }
    version = chart.version if chart.version.startswith("v") else f"v{chart.version}"
    if image.joined:
        return f"{chosen[f'{image.section}.repository']}:{chosen[f'{image.section}.tag'] or version}"
    repository, name, tag = (chosen[f"{image.section}.{key}"] for key in ("repository", "image", "version"))
    return f"{repository}/{name}{'@' if tag.startswith('sha256:') else ':'}{tag or version}"


def _at(values: Mapping[str, Any], path: str) -> Any:
    found: Any = values
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
