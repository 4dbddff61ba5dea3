"""`gpushare images`: what to copy into a registry of one's own, and what it lacks."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from gpushare.bundle import lock, reader
from gpushare.cli import inputs, options, report, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import emit
from gpushare.facts.catalog.upstream import OCI
from gpushare.reading import source
from gpushare.render import images
from gpushare.render.images import ChartSource, Pulled
from gpushare.render.mirror import copies
from gpushare.render.mirror.copies import Omission
from gpushare.report import images as image_report
from gpushare_node.contract.struct import Struct, replace

_NEEDED = ("images.txt", "chart/values.yaml")
_UNKNOWN = ": gpushare knows only the tags of "


@click.command(cls=options.Command)
@click.argument("intent", type=options.INTENT, metavar="INTENT|BUNDLE")
@options.overlays()
@click.option("--to", metavar="REGISTRY", help="Copy to this registry, such as reg.example.org/mirror.")
@click.option("--charts-to", metavar="REGISTRY", help="Copy the charts to this one, such as oci://reg.example.org/charts.")
@click.option(
    "--image-from",
    metavar="REPOSITORY",
    help="Where the node runtime's image was pushed, such as reg.example.org/gpushare/node-runtime.",
)
@click.option("--os", "systems", multiple=True, metavar="SYSTEM", help="System of the nodes, such as ubuntu24.04; repeatable.")
@click.option(
    "--kernel", "kernels", multiple=True, metavar="RELEASE", help="Kernel of the nodes, for precompiled drivers; repeatable."
)
@click.option("--verify", is_flag=True, help="Query the target registry with skopeo or crane; exit 3 if an image is missing.")
@click.option("--plain-http", is_flag=True, help="With --verify: use no TLS, or do not check the certificate.")
@options.product_format("text", "json", *copies.SCRIPTS)
@options.strict()
def command(  # noqa: PLR0913 - one for each argument of the command line
    *,
    intent: str,
    overlays: tuple[str, ...],
    to: str | None,
    charts_to: str | None,
    image_from: str | None,
    systems: tuple[str, ...],
    kernels: tuple[str, ...],
    verify: bool,
    plain_http: bool,
    style: str,
    strict: bool,
) -> ExitCode:
    """List the images that a bundle needs, each with its source and target.

    These are the node runtime's, the one in the README's examples, and those
    of the enabled parts of NVIDIA's and AMD's charts. The target is where the
    nodes pull the image: the bundle's own reference, or with --to the same
    repository under another registry.

    The charts are listed as well; their target is --charts-to, or for NVIDIA's
    by default the intent's platform.charts.

    With platform.registry the intent names the target of the node runtime's
    image, and --image-from the repository to which it was pushed. Without
    --image-from no script copies that image, with a warning.

    The operator appends the node's system to the tag of the driver: --os names
    the systems. Without it the driver is left out, with a warning.

    The formats skopeo and crane are shell scripts for these tools, and for
    Helm; a target equal to its source is left out of them.

    --verify runs skopeo, or crane if there is no skopeo. Logins, certificates
    and proxies are those of that program.

    For example:
      gpushare images intent.yaml
      gpushare images bundle --to reg.example.org/mirror --format skopeo
      gpushare images bundle --to reg.example.org/mirror --verify

    Exit codes:
      0  done (with --verify: the registry has all of them)
      1  INTENT has errors, or with --strict: warnings or an incomplete list
      2  INTENT could not be read, or the registry did not answer
      3  --verify: images are missing
    """
    for wrong in _wrong_words(to, charts_to, image_from, {"--os": systems, "--kernel": kernels}):
        raise click.UsageError(wrong)
    if verify and style in copies.SCRIPTS:
        raise click.UsageError("--verify writes text or json")
    if plain_http and not verify:
        raise click.UsageError("--plain-http is for --verify")
    is_bundle = intent not in ("", "-") and Path(intent).is_dir()
    if is_bundle and overlays:
        raise click.UsageError("--overlay: a bundle is compiled already; name its intent")
    images = _of_bundle(Path(intent)) if is_bundle else _of_intent(intent, overlays, strict=strict)
    listed, lacking = copies.copies(images.pulled, to, systems, kernels, image_from)
    targets = [one.target for one in listed]
    # A registry is asked for a target, whatever its source.
    omissions = [*(one for one in lacking if not (verify and one.text in targets)), *images.omissions]
    charts = [copies.chart_copy(one, charts_to) for one in images.charts]
    targets += [one.reference for one in charts if one.reference]
    missing: tuple[str, ...] | None = None
    if verify:
        from gpushare.render.mirror import verification  # noqa: PLC0415 - only --verify runs other programs

        missing = verification.missing(targets, plain_http=plain_http)
    for one in omissions:
        streams.warn(f"gpushare: warning: {one.message}\n{streams.hint(one.hint)}")
    if style == "json":
        found = image_report.Listing(listed=listed, charts=charts, omissions=omissions, missing=missing)
        streams.product(emit.json_text(image_report.DOCUMENT.write(found)))
    elif missing is not None:
        what = "images" if len(targets) == len(listed) else "images and charts"
        there = f"{len(targets) - len(missing)} of {len(targets)} {what} are there\n"
        streams.write("".join(f"missing {one}\n" for one in missing) + there)
    else:
        streams.write(copies.script(listed, style, charts) if style in copies.SCRIPTS else copies.plain(listed, charts))
    if strict and omissions:
        return ExitCode.FINDINGS
    return ExitCode.CHANGES if missing else ExitCode.DONE


def _wrong_words(
    to: str | None, charts_to: str | None, image_from: str | None, suffixes: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """Yield what is wrong with the words that become parts of references, and of commands."""
    if to is not None and not copies.is_registry(to):
        yield f"--to: {to!r} is not a registry; write it like reg.example.org/mirror, without https://"
    if charts_to is not None and not (charts_to.startswith(OCI) and copies.is_registry(charts_to.removeprefix(OCI))):
        yield f"--charts-to: {charts_to!r} is not a registry; write it like oci://reg.example.org/charts"
    if image_from is not None and not copies.is_repository(image_from):
        yield (
            f"--image-from: {image_from!r} is not a repository with a host; "
            "write it like reg.example.org/gpushare/node-runtime, without the tag, which the bundle has"
        )
    for name, words in suffixes.items():
        yield from (f"{name}: {word!r} cannot be part of a tag" for word in words if not copies.is_tag_part(word))


class ImageList(Struct):
    """The images of one intent or bundle, and its upstream charts. `omissions`: what of the images and charts is not known."""

    pulled: tuple[Pulled, ...]
    charts: tuple[ChartSource, ...] = ()
    omissions: tuple[Omission, ...] = ()


def _of_intent(intent: str, overlays: tuple[str, ...], *, strict: bool) -> ImageList:
    """Return the images of an intent. Raises FindingsError for one with errors."""
    read = inputs.valid(intent, overlays, strict=strict)
    return _of_files({artifact.path: artifact.text for artifact in read.artifacts}, intent)


def _of_bundle(directory: Path) -> ImageList:
    """Return the images of a bundle. Raises CouldNotRunError for a folder that is none."""
    inputs.refuse_other_folders(directory, _NEEDED)
    files = inputs.read_files(directory, (*_NEEDED, "gpu-operator/values.yaml", "device-plugin/values.yaml", lock.FILE))
    wrong = dict(reader.findings(files, str(directory)))
    if wrong:
        texts = {finding.file: text for finding, text in wrong.items()}
        report.report(list(wrong), texts, report.chosen(None), as_product=False)
        raise CouldNotRunError(f"{directory} cannot be read", "compile the bundle again")
    return _of_files({path: data.decode() for path, data in files.items()}, str(directory))


def _of_files(texts: Mapping[str, str], name: str) -> ImageList:
    """Return the images that the values of a bundle's charts name. The version of NVIDIA's chart is in images.txt."""
    values = _values(texts, "chart/values.yaml", name)
    image = values.get("image")
    texts_of_image = ("registry", "repository", "tag", "digest")
    if not isinstance(image, dict) or not all(isinstance(image.get(key), str) for key in texts_of_image):
        raise _edited("chart/values.yaml", name)
    listed = texts["images.txt"]
    fixed = _of_vendors(listed)
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
    found = ImageList(pulled=pulled, charts=(*([chart] if chart else []), *fixed.charts), omissions=omissions)
    unknown = next((line for line in listed.splitlines() if _UNKNOWN in line), "")
    if unknown:
        return replace(found, omissions=(*omissions, _without_tags(unknown)))
    upstream_values = _values(texts, f"{stack}/values.yaml", name)
    of_chart = images.of_chart(stack, upstream_values, values["image"].get("registry") or None)
    return replace(found, pulled=(*pulled, *of_chart))


def _of_vendors(listed: str) -> ImageList:
    """Return what the text of images.txt says of the charts of other vendors than NVIDIA."""
    found = tuple(images.of_vendors(listed))
    lacking = tuple(
        Omission(text=text, message=f"the list is incomplete: {text}", hint=f"list them with `{one.lists}`")
        for one in found
        if one.lists
        for text in [f"gpushare does not know the images of the subcharts of {one.chart.name}"]
    )
    return ImageList(
        pulled=tuple(image for one in found for image in one.pulled),
        charts=tuple(one.chart for one in found),
        omissions=lacking,
    )


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
