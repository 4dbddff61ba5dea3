"""`gpushare compile`: the bundle, or whether it is current, or its objects as plain manifests."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpushare.cli import options
from gpushare.cli.exits import CouldNotRunError, ExitCode

if TYPE_CHECKING:
    from gpushare.cli.inputs import Input


@click.command(cls=options.Command, short_help="Prove an intent and write its bundle.")
@options.intent_argument()
@click.option("-o", "--output", type=click.Path(file_okay=False), metavar="DIR",
              help="The bundle. Default: `bundle` beside INTENT; ./bundle for `-`.")
@click.option("--check", is_flag=True, help="Write nothing; exit 3 and list the files when DIR is not current.")
@click.option("--manifests", is_flag=True, help="Write nothing; print the cluster's objects as YAML documents.")
@options.findings_format()
@options.strict()
def command(  # noqa: PLR0913 - one for each argument of the command line
    *, intent: str, output: str | None, check: bool, manifests: bool, style: str | None, strict: bool
) -> ExitCode:
    """Prove INTENT and write its bundle.

    The bundle is chart, values, ConfigMaps, policies, and a README for the
    people who use the GPUs.

    The same INTENT and the same lock file in DIR always give the same files; a
    second run changes nothing. Files that an earlier run wrote and this one
    does not are removed; files of others are never touched. Findings go to
    stderr; with --format json or sarif they are what stdout gets.

    For example:
      gpushare compile intent.yaml
      gpushare compile --check intent.yaml      is the committed bundle current?
      gpushare compile --manifests intent.yaml  for an Argo CD plugin, kustomize

    Exit codes:
      0  done
      1  INTENT has errors (with --strict: or warnings); nothing is written
      2  INTENT could not be read or DIR not be written
      3  --check: DIR is not current
    """
    if check and manifests:
        raise click.UsageError("--check and --manifests exclude each other")
    if output == "":  # an unset variable of a script, not the working directory
        raise click.UsageError("--output: DIR is empty text")
    from gpushare.cli import inputs, report  # noqa: PLC0415 - `--help` and completion need none of it

    directory = Path(output) if output else inputs.bundle_of(intent)
    read = inputs.compiled(intent, directory)
    form = report.chosen(style)
    for_programs = form in {report.Format.JSON, report.Format.SARIF} and not manifests
    report.report(read.findings, read.text, form, as_product=for_programs, accepted=read.accepted)
    code = report.verdict(read.findings, strict=strict)
    if code is not ExitCode.DONE:
        return code
    if manifests:
        return _print_manifests(read)
    return _bundle(read, directory, write=not check, quiet=for_programs)


def _print_manifests(read: "Input") -> ExitCode:
    """All documents at once: an Argo plugin that sees half of them would delete the rest."""
    from gpushare import emit, render  # noqa: PLC0415 - not on the way to a bundle
    from gpushare.cli import streams  # noqa: PLC0415 - as above

    streams.product("---\n".join(emit.yaml_text(one) for one in render.objects(read.plan, read.memory)))
    return ExitCode.DONE


def _bundle(read: "Input", directory: Path, *, write: bool, quiet: bool) -> ExitCode:
    from gpushare import output  # noqa: PLC0415 - not on the way to manifests
    from gpushare.cli import outcome, streams  # noqa: PLC0415 - as above

    say = streams.tell if quiet else streams.say
    try:
        if write:
            changes = output.write(read.artifacts, directory, read.memory)
            say(outcome.written(read, changes, directory))
            return ExitCode.DONE
        changes = output.changes(read.artifacts, directory)
    except output.OutputError as problem:
        raise CouldNotRunError(problem.message, problem.hint) from problem
    say(outcome.checked(changes, directory))
    return ExitCode.CHANGES if changes else ExitCode.DONE
