"""`gpushare check`: prints the findings of one intent."""

import click

from gpushare.cli import options
from gpushare.cli.exits import ExitCode


@click.command(cls=options.Command, short_help="Report errors in an intent, and where they are.")
@options.intent_argument()
@options.overlays()
@options.findings_format()
@options.strict()
def command(intent: str, overlays: tuple[str, ...], style: str | None, strict: bool) -> ExitCode:
    """Report what is wrong with INTENT, where, and what to write instead.

    Findings go to stdout, all of a stage at once. `-` reads stdin. Warnings that
    spec.accept names are counted, and --strict ignores them.
    `gpushare explain CODE` explains a finding.

    For example:
      gpushare check intent.yaml
      gpushare check base.yaml --overlay prod.yaml
      gpushare check --format sarif intent.yaml > findings.sarif

    Exit codes:
      0  no errors (with --strict: no warnings either)
      1  errors were found
      2  INTENT could not be read
    """
    from gpushare import pipeline  # noqa: PLC0415 - `--help` needs none of it
    from gpushare.cli import report, streams  # noqa: PLC0415 - as above
    from gpushare.reading import source  # noqa: PLC0415 - as above

    over: list[pipeline.Overlay] = []
    if overlays:
        from gpushare.cli import inputs  # noqa: PLC0415 - most calls have none

        over = inputs.read_overlays(intent, overlays)
    compilation = pipeline.check(*streams.read(intent, source.MAX_BYTES), over)
    form, text = report.chosen(style), compilation.source.texts
    report.report(compilation.findings, text, form, as_product=True, accepted=compilation.accepted)
    return report.verdict(compilation.findings, strict=strict)
