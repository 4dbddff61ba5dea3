"""What `gpushare images` reads: the images of an intent, or of a bundle, by the values of its charts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpushare.bundle import lock, reader
from gpushare.catalog.amd_charts import OF_SUBCHARTS
from gpushare.cli import inputs, report
from gpushare.cli.exits import CouldNotRunError
from gpushare.mirror.copies import Omission
from gpushare.reading import source
from gpushare.render import images
from gpushare.render.images import ChartSource, Pulled
from gpushare_node.contract.struct import Struct, replace

_NEEDED = ("images.txt", "chart/values.yaml")
_UNKNOWN = ": gpushare knows only the tags of "


class Images(Struct):
    """The images of one intent or bundle, and its upstream charts. `omissions`: what of the images and charts is not known."""

    pulled: tuple[Pulled, ...]
    charts: tuple[ChartSource, ...] = ()
    omissions: tuple[Omission, ...] = ()


def of_intent(intent: str, overlays: tuple[str, ...], *, strict: bool) -> Images:
    """Return the images of an intent. Raises FindingsError for one with errors."""
    read = inputs.valid(intent, overlays, strict=strict)
    return _of_files({artifact.path: artifact.text for artifact in read.artifacts}, intent)


def of_bundle(directory: Path) -> Images:
    """Return the images of a bundle. Raises CouldNotRunError for a folder that is none."""
    files = inputs.read_files(directory, (*_NEEDED, "gpu-operator/values.yaml", "device-plugin/values.yaml", lock.FILE))
    if not set(_NEEDED) <= files.keys():
        raise CouldNotRunError(f"{directory} is not a bundle", "name an intent file or what `gpushare compile` wrote")
    wrong = dict(reader.findings(files, str(directory)))
    if wrong:
        texts = {finding.file: text for finding, text in wrong.items()}
        report.report(list(wrong), texts, report.chosen(None), as_product=False)
        raise CouldNotRunError(f"{directory} cannot be read", "compile the bundle again")
    return _of_files({path: data.decode() for path, data in files.items()}, str(directory))


def _of_files(texts: Mapping[str, str], name: str) -> Images:
    """Return the images that the values of a bundle's charts name. The version of NVIDIA's chart is in images.txt."""
    values = _values(texts, "chart/values.yaml", name)
    image = values.get("image")
    texts_of_image = ("registry", "repository", "tag", "digest")
    if not isinstance(image, dict) or not all(isinstance(image.get(key), str) for key in texts_of_image):
        raise _edited("chart/values.yaml", name)
    listed = texts["images.txt"]
    fixed = _of_amd(listed)
    pulled = (*images.own(values), *fixed.pulled)
    if of_dra := images.dra_of(listed):
        chart_of_dra, image_of_dra = of_dra
        pulled += (image_of_dra,)
        fixed = replace(fixed, charts=(chart_of_dra, *fixed.charts))
    stack = next((stack for stack in ("gpu-operator", "device-plugin") if f"{stack}/values.yaml" in texts), None)
    if stack is None:
        return replace(fixed, pulled=pulled)
    chart = images.chart_of(listed, stack)
    omissions = (*fixed.omissions, *(() if chart else (_without_chart(stack, name),)))
    found = Images(pulled=pulled, charts=(*([chart] if chart else []), *fixed.charts), omissions=omissions)
    unknown = next((line for line in listed.splitlines() if _UNKNOWN in line), "")
    if unknown:
        return replace(found, omissions=(*omissions, _without_tags(unknown)))
    upstream_values = _values(texts, f"{stack}/values.yaml", name)
    of_chart = images.of_chart(stack, upstream_values, values["image"].get("registry") or None)
    return replace(found, pulled=(*pulled, *of_chart))


def _of_amd(listed: str) -> Images:
    """Return what the text of images.txt says of AMD's chart."""
    chart = images.amd_chart_of(listed)
    if chart is None:
        return Images(pulled=())
    lists = next((line for line in listed.splitlines() if line.startswith(OF_SUBCHARTS)), "")
    text = f"gpushare does not know the images of the subcharts of {chart.name}"
    hint = f"list them with `{lists.partition(': ')[2]}`"
    lacking = (Omission(text=text, message=f"the list is incomplete: {text}", hint=hint),) if lists else ()
    return Images(pulled=images.of_amd(listed), charts=(chart,), omissions=lacking)


def _without_chart(stack: str, name: str) -> Omission:
    text = f"images.txt of {name} has no line `# The chart:`, so the version of the chart {stack} is unknown"
    return Omission(text=text, message=f"the list is incomplete: {text}", hint="compile the bundle again")


def _without_tags(line: str) -> Omission:
    text = line.removeprefix("# ").partition(". ")[0]
    hint = "images.txt of the bundle says how to list the others"
    return Omission(text=text, message=f"the list is incomplete: {text}", hint=hint)


def _values(texts: Mapping[str, str], path: str, name: str) -> dict[str, Any]:
    data = source.read(texts[path].encode(), path, own=True).data
    if not isinstance(data, dict):
        raise _edited(path, name)
    return data


def _edited(path: str, name: str) -> CouldNotRunError:
    return CouldNotRunError(f"{path} of {name} is not what `gpushare compile` writes", "compile the bundle again")
