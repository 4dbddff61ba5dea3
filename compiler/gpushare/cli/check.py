"""`gpushare check`: prints the findings of one intent."""

import click

from gpushare import pipeline
from gpushare.cli import inputs, options, report, streams
from gpushare.cli.exits import ExitCode
from gpushare.reading import source


@click.command(cls=options.Command)
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
    over: list[pipeline.Overlay] = []
    if overlays:
        over = inputs.read_overlays(intent, overlays)
    compilation = pipeline.check(*streams.read(intent, source.MAX_BYTES), over)
    form, text = report.chosen(style), compilation.source.texts
    report.report(compilation.findings, text, form, as_product=True, accepted=compilation.accepted)
    return report.verdict(compilation.findings, strict=strict)
