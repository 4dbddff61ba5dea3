"""`gpushare images`: what to copy into a registry of one's own, and what it lacks."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpushare.catalog.upstream import OCI
from gpushare.cli import inputs, options, report, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core.record import Record
from gpushare.mirror import formats
from gpushare.render.images import Chart, Pulled

if TYPE_CHECKING:
    from gpushare.mirror.copies import ChartCopy

_UNKNOWN = ": gpushare knows only the tags of "


class _Images(Record):
    """The images of one intent or bundle, and NVIDIA's chart. `unknown`: why the images of that are not among them."""

    pulled: tuple[Pulled, ...]
    chart: Chart | None = None
    unknown: str = ""


@click.command(cls=options.Command, short_help="List the images to copy into a registry, or those that it lacks.")
@click.argument("intent", type=options.INTENT, metavar="INTENT|BUNDLE")
@options.overlays()
@click.option("--to", metavar="REGISTRY", help="Copy to this registry, such as reg.example.org/mirror.")
@click.option("--charts-to", metavar="REGISTRY", help="Copy NVIDIA's chart to this one, such as oci://reg.example.org/charts.")
@click.option("--os", "systems", multiple=True, metavar="SYSTEM", help="System of the nodes, such as ubuntu24.04; repeatable.")
@click.option("--kernel", "kernels", multiple=True, metavar="RELEASE",
              help="Kernel of the nodes, for precompiled drivers; repeatable.")
@click.option("--verify", is_flag=True, help="Ask the target registry; exit 3 when it lacks an image.")
@click.option("--plain-http", is_flag=True, help="--verify asks a registry without TLS.")
@click.option("--docker-config", type=click.Path(), metavar="FILE",
              help="Logins for --verify. Default: config.json of $DOCKER_CONFIG or ~/.docker.")
@options.product_format("text", "json", *formats.TOOLS)
@options.strict()
def command(  # noqa: PLR0913 - one for each argument of the command line
    *, intent: str, overlays: tuple[str, ...], to: str | None, charts_to: str | None, systems: tuple[str, ...],
    kernels: tuple[str, ...], verify: bool, plain_http: bool, docker_config: str | None, style: str, strict: bool,
) -> ExitCode:
    """List the images that a bundle needs, each with its source and target.

    These are the node runtime's, the one in the README's examples, and those
    of the enabled parts of NVIDIA's chart. The target is where the nodes pull
    the image: the bundle's own reference, or with --to the same repository
    under another registry.

    NVIDIA's chart is listed as well; its target is platform.charts of the
    intent, or --charts-to.

    The operator appends the node's system to the tag of the driver: --os says
    which systems there are. Without it the driver is left out, with a warning.

    The formats skopeo, crane, oras and containerd are shell scripts for these
    tools, and for Helm; a target equal to its source is left out of them.

    For example:
      gpushare images intent.yaml
      gpushare images bundle --to reg.example.org/mirror --format skopeo
      gpushare images bundle --to reg.example.org/mirror --verify

    Exit codes:
      0  done (with --verify: the registry has all of them)
      1  INTENT has errors, or with --strict: warnings or an incomplete list
      2  INTENT could not be read or the registry not be asked
      3  --verify: images are missing
    """
    from gpushare.mirror import copies  # noqa: PLC0415 - `--help` does not need it

    if to is not None and not copies.is_registry(to):
        raise click.UsageError(f"--to: invalid registry {to!r}; write it like reg.example.org/mirror, without https://")
    if charts_to is not None and not (charts_to.startswith(OCI) and copies.is_registry(charts_to.removeprefix(OCI))):
        raise click.UsageError(f"--charts-to: invalid registry {charts_to!r}; write it like oci://reg.example.org/charts")
    for name, words in (("--os", systems), ("--kernel", kernels)):
        wrong = next((word for word in words if not copies.is_tag_part(word)), None)
        if wrong is not None:
            raise click.UsageError(f"{name}: {wrong!r} cannot be part of a tag")
    if verify and style in formats.TOOLS:
        raise click.UsageError("--verify writes text or json")
    if (plain_http or docker_config) and not verify:
        raise click.UsageError("--plain-http and --docker-config are for --verify")
    is_bundle = intent not in ("", "-") and Path(intent).is_dir()
    if is_bundle and overlays:
        raise click.UsageError("--overlay: a bundle is compiled already; name its intent")
    images = _of_bundle(Path(intent)) if is_bundle else _of_intent(intent, overlays, strict=strict)
    if images is None:
        return ExitCode.FINDINGS
    listed, incomplete = copies.copies(images.pulled, to, systems, kernels)
    chart = copies.chart_copy(images.chart, charts_to)
    targets = [*(one.target for one in listed), *([chart.reference] if chart and chart.reference else ())]
    missing = _missing(targets, docker_config, plain_http=plain_http) if verify else None
    _warn(images.unknown, incomplete)
    if style == "json":
        from gpushare.core import emit  # noqa: PLC0415 - only for programs

        streams.product(emit.json_text({
            "apiVersion": "gpushare.dev/v1",
            "kind": "Images",
            "images": [
                {"part": one.part, "source": one.source, "target": one.target}
                | ({} if missing is None else {"missing": one.target in missing})
                for one in listed
            ],
            "charts": _charts(chart, missing),
            "incomplete": [*incomplete, *([images.unknown] if images.unknown else [])],
        }))
    elif missing is not None:
        what = "images" if len(targets) == len(listed) else "images and charts"
        there = f"{len(targets) - len(missing)} of {len(targets)} {what} are there\n"
        streams.say("".join(f"missing {one}\n" for one in missing) + there)
    else:
        streams.say(formats.script(listed, style, chart) if style in formats.TOOLS else formats.plain(listed, chart))
    if strict and (incomplete or images.unknown):
        return ExitCode.FINDINGS
    return ExitCode.CHANGES if missing else ExitCode.DONE


def _charts(chart: "ChartCopy | None", missing: tuple[str, ...] | None) -> list[dict[str, Any]]:
    if chart is None:
        return []
    found = {"name": chart.name, "version": chart.version, "source": chart.source, "target": chart.target}
    return [found if missing is None or not chart.reference else {**found, "missing": chart.reference in missing}]


def _warn(unknown: str, incomplete: tuple[str, ...]) -> None:
    for source in incomplete:
        streams.tell(f"gpushare: warning: {source} is left out: the operator appends the node's system to its tag\n"
                     + streams.hint("name the systems with --os, and for precompiled drivers the kernels with --kernel"))
    if unknown:
        streams.tell(f"gpushare: warning: the list is incomplete: {unknown}\n"
                     + streams.hint("images.txt of the bundle says how to list the others"))


def _of_intent(intent: str, overlays: tuple[str, ...], *, strict: bool) -> _Images | None:
    """Return the images of an intent; None after its errors are reported."""
    read = inputs.compiled(intent, inputs.bundle_of(intent), overlays=overlays)
    report.report(read.findings, read.text.texts, report.chosen(None), as_product=False)
    if report.verdict(read.findings, strict=strict) is not ExitCode.DONE:
        return None
    return _of_files({artifact.path: artifact.text for artifact in read.artifacts}, intent)


def _of_bundle(directory: Path) -> _Images:
    texts = {}
    for path in ("images.txt", "chart/values.yaml", "gpu-operator/values.yaml", "device-plugin/values.yaml"):
        try:
            texts[path] = (directory / path).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ValueError as problem:
            raise CouldNotRunError(f"{directory / path} is not UTF-8", "compile the bundle again") from problem
    if not {"images.txt", "chart/values.yaml"} <= texts.keys():
        raise CouldNotRunError(f"{directory} is not a bundle", "name an intent file or what `gpushare compile` wrote")
    return _of_files(texts, str(directory))


def _of_files(texts: Mapping[str, str], name: str) -> _Images:
    """Return the images that the values of a bundle's charts name. The version of NVIDIA's chart is in images.txt."""
    from gpushare.render import images  # noqa: PLC0415 - `--help` does not need it

    values = _values(texts, "chart/values.yaml", name)
    image = values.get("image")
    texts_of_image = ("registry", "repository", "tag", "digest")
    if not isinstance(image, dict) or not all(isinstance(image.get(key), str) for key in texts_of_image):
        raise CouldNotRunError(f"chart/values.yaml of {name} is not what `gpushare compile` writes", "compile the bundle again")
    pulled = images.own(values)
    stack = next((stack for stack in ("gpu-operator", "device-plugin") if f"{stack}/values.yaml" in texts), None)
    chart = images.chart_of(texts["images.txt"], stack) if stack else None
    unknown = next((line for line in texts["images.txt"].splitlines() if _UNKNOWN in line), "")
    if unknown:
        return _Images(pulled=pulled, chart=chart, unknown=unknown.removeprefix("# ").partition(". ")[0])
    if stack:
        upstream_values = _values(texts, f"{stack}/values.yaml", name)
        pulled += images.of_chart(stack, upstream_values, values["image"].get("registry") or None)
    return _Images(pulled=pulled, chart=chart)


def _values(texts: Mapping[str, str], path: str, name: str) -> dict[str, Any]:
    from gpushare.reading import source  # noqa: PLC0415 - `--help` does not need it

    data = source.read(texts[path].encode(), path, own=True).data
    if not isinstance(data, dict):
        raise CouldNotRunError(f"{path} of {name} is not what `gpushare compile` writes", "compile the bundle again")
    return data


def _missing(targets: list[str], docker_config: str | None, *, plain_http: bool) -> tuple[str, ...]:
    from gpushare.mirror import credentials, registry  # noqa: PLC0415 - only --verify opens connections

    folder = os.environ.get("DOCKER_CONFIG")
    path = Path(docker_config) if docker_config else (Path(folder) if folder else Path.home() / ".docker") / "config.json"
    logins = credentials.NONE
    if docker_config or path.is_file():
        try:
            logins = credentials.read(path)
        except OSError as problem:
            hint = "name another file with --docker-config"
            raise CouldNotRunError(f"cannot read {path}: {streams.reason(problem)}", hint) from problem
        except ValueError as problem:
            raise CouldNotRunError(f"{path} is not a config.json of Docker: {problem}") from problem
    try:
        return registry.Registries(logins, plain_http=plain_http).missing(targets)
    except registry.RegistryError as problem:
        raise CouldNotRunError(str(problem), problem.hint) from problem
