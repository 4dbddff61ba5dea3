"""`gpushare compile`: the bundle, or whether it is current."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpushare.cli import options
from gpushare.cli.exits import ExitCode

if TYPE_CHECKING:
    from gpushare.cli.inputs import LoadedIntent


@click.command(cls=options.Command, short_help="Validate an intent and write its bundle.")
@click.argument("intent", type=options.INTENT, required=False)
@options.overlays()
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The bundle. Default: `bundle` beside INTENT; ./bundle for `-`.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit 3 and list the files when DIR is not current.")
@click.option("--fleet", type=options.INTENT, metavar="FILE", help="Compile every cluster that FILE lists, instead of INTENT.")
@options.findings_format()
@options.strict()
def command(  # noqa: PLR0913 - one for each argument of the command line
    *,
    intent: str | None,
    overlays: tuple[str, ...],
    output: str | None,
    check: bool,
    fleet: str | None,
    style: str | None,
    strict: bool,
) -> ExitCode:
    """Validate INTENT and write its bundle.

    The bundle is chart, values, ConfigMaps, policies, and a README for the
    people who use the GPUs.

    The same INTENT and the same lock file in DIR always give the same files; a
    second run changes nothing. Files that an earlier run wrote and this one
    does not are removed; other files are never touched. Findings go to
    stderr; with --format json or sarif they go to stdout.

    For example:
      gpushare compile intent.yaml
      gpushare compile base.yaml --overlay prod.yaml -o prod/bundle
      gpushare compile --check intent.yaml      is the committed bundle current?
      gpushare compile --fleet clusters.yaml    every cluster in one run

    --fleet compiles one cluster after another. If one fails, the others are
    still compiled; the exit code is the worst of all, in the order 0, 3, 1, 2,
    70.

    Exit codes:
      0  done
      1  INTENT has errors (with --strict: or warnings); nothing is written
      2  INTENT could not be read, or DIR could not be written
      3  --check: DIR is not current
    """
    if fleet is not None:
        if intent is not None or overlays or output is not None:
            raise click.UsageError("--fleet excludes INTENT, --overlay and --output: its file has them")
        return _compile_fleet(fleet, check=check, style=style, strict=strict)
    if intent is None:
        raise click.UsageError("name INTENT, or a file of clusters with --fleet")
    if output == "":  # an unset variable of a script, not the working directory
        raise click.UsageError("--output: DIR is empty text")
    from gpushare.cli import inputs, report, streams  # noqa: PLC0415 - `--help` needs none of it

    directory = Path(output) if output else inputs.bundle_of(intent)
    read = inputs.judged(inputs.compiled(intent, directory, overlays=overlays), directory)
    form = report.chosen(style)
    for_programs = form in {report.Format.JSON, report.Format.SARIF}
    files = [artifact.path for artifact in read.artifacts]
    report.report(read.findings, read.text.texts, form, as_product=for_programs, accepted=read.accepted, files=files)
    code = report.verdict(read.findings, strict=strict)
    if code is not ExitCode.DONE:
        return code
    code, text = _bundle(read, directory, write=not check)
    (streams.warn if for_programs else streams.write)(text)
    return code


def _bundle(read: "LoadedIntent", directory: Path, *, write: bool) -> tuple[ExitCode, str]:
    """Write the bundle of an intent without errors, or compare it with the folder; return the exit code, and what to say."""
    from gpushare.bundle import writer  # noqa: PLC0415 - as above
    from gpushare.cli import summary  # noqa: PLC0415 - as above
    from gpushare.cli.progress import Progress  # noqa: PLC0415 - as above
    from gpushare.core.wording import pluralize  # noqa: PLC0415 - as above

    if write:
        with Progress(f"writing {pluralize(len(read.artifacts), 'file')}"):
            changes = writer.write(read.artifacts, directory, read.previous_lock)
        return ExitCode.DONE, summary.written(read, changes, directory)
    changes = writer.changes(read.artifacts, directory)
    return ExitCode.CHANGES if changes else ExitCode.DONE, summary.checked(changes, directory)


def _compile_fleet(file: str, *, check: bool, style: str | None, strict: bool) -> ExitCode:
    """Compile every cluster that the file lists, write what became of each, and return the worst exit code."""
    from gpushare.cli import fleet, inputs, report, streams  # noqa: PLC0415 - most compiles are of one cluster
    from gpushare.core import emit  # noqa: PLC0415 - as above
    from gpushare.core.diagnostics import in_order  # noqa: PLC0415 - as above
    from gpushare.report import finding_formats  # noqa: PLC0415 - as above

    form = report.chosen(style)

    def make(cluster: fleet.Cluster) -> fleet.Made:
        directory = Path(cluster.output)
        read = inputs.judged(inputs.compiled(cluster.intent, directory, overlays=cluster.overlays), directory)
        result = in_order(list(read.findings)), read.accepted, [artifact.path for artifact in read.artifacts]
        if form in (report.Format.TEXT, report.Format.GITHUB):
            report.report(read.findings, read.text.texts, form, as_product=False, accepted=read.accepted)
        code = report.verdict(read.findings, strict=strict)
        if code is not ExitCode.DONE:
            return fleet.Made(code=code, outcome="findings", text=report.counted(*result[:2]), result=result)
        code, text = _bundle(read, directory, write=not check)
        if form is report.Format.JSON:
            streams.warn(text)
        outcome = "stale" if code is ExitCode.CHANGES else "current" if check else "compiled"
        return fleet.Made(code=code, outcome=outcome, text=text, result=result)

    done = fleet.run(file, form, make)
    if form is report.Format.JSON:
        results = [one.made.result and finding_formats.document(*one.made.result) for one in done]
        streams.product(emit.json_text(fleet.document("FleetResult", "findings", done, results, fleet.worst(done))))
    elif form is report.Format.SARIF:
        failed = [one for one in done if one.made.result is None]
        streams.warn("".join(one.message for one in failed))
        judged = {one.cluster.name: one.made.result[:2] for one in done if one.made.result}
        streams.product(finding_formats.sarif_of_fleet(judged, [f"{one.cluster.name}: {one.made.text}" for one in failed]))
    else:
        streams.warn("".join(one.message for one in done))
        streams.write(fleet.lines(done))
    return fleet.worst(done)
