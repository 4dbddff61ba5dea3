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
@click.option("--jobs", type=options.number(64), metavar="N", help="Clusters at a time. Default: one per processor.")
@options.findings_format()
@options.strict()
def command(  # noqa: PLR0913 - one for each argument of the command line
    *,
    intent: str | None,
    overlays: tuple[str, ...],
    output: str | None,
    check: bool,
    fleet: str | None,
    jobs: int | None,
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

    --fleet compiles the clusters side by side. If one fails, the others are
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
        from gpushare.cli import fleet as clusters  # noqa: PLC0415 - most compiles are of one cluster

        return clusters.compile_fleet(fleet, check=check, jobs=jobs, style=style, strict=strict)
    if intent is None:
        raise click.UsageError("name INTENT, or a file of clusters with --fleet")
    if jobs is not None:
        raise click.UsageError("--jobs is for --fleet")
    if output == "":  # an unset variable of a script, not the working directory
        raise click.UsageError("--output: DIR is empty text")
    from gpushare.cli import inputs, report  # noqa: PLC0415 - `--help` needs none of it

    directory = Path(output) if output else inputs.bundle_of(intent)
    read = inputs.judged(inputs.compiled(intent, directory, overlays=overlays), directory)
    form = report.chosen(style)
    for_programs = form in {report.Format.JSON, report.Format.SARIF}
    files = [artifact.path for artifact in read.artifacts]
    report.report(read.findings, read.text.texts, form, as_product=for_programs, accepted=read.accepted, files=files)
    code = report.verdict(read.findings, strict=strict)
    if code is not ExitCode.DONE:
        return code
    return _bundle(read, directory, write=not check, quiet=for_programs)


def _bundle(read: "LoadedIntent", directory: Path, *, write: bool, quiet: bool) -> ExitCode:
    from gpushare.bundle import writer  # noqa: PLC0415 - as above
    from gpushare.cli import streams, summary  # noqa: PLC0415 - as above
    from gpushare.cli.progress import Progress  # noqa: PLC0415 - as above
    from gpushare.core.wording import pluralize  # noqa: PLC0415 - as above

    say = streams.warn if quiet else streams.write
    if write:
        with Progress(f"writing {pluralize(len(read.artifacts), 'file')}"):
            changes = writer.write(read.artifacts, directory, read.previous_lock)
        say(summary.written(read, changes, directory))
        return ExitCode.DONE
    changes = writer.changes(read.artifacts, directory)
    say(summary.checked(changes, directory))
    return ExitCode.CHANGES if changes else ExitCode.DONE
