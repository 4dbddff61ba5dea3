"""What `check`, `compile` and `show` do after their arguments are parsed. Knows nothing of the arguments' syntax."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpushare.cli.exits import CouldNotRunError, ExitCode

if TYPE_CHECKING:
    from gpushare.cli.inputs import LoadedIntent

# Each command imports its own modules: a cold run imports only what it needs.


def check(*, intent: str, overlays: tuple[str, ...], style: str | None, strict: bool) -> ExitCode:
    """Write the findings to stdout, as the command's output."""
    from gpushare import pipeline  # noqa: PLC0415 - as above
    from gpushare.cli import report, streams  # noqa: PLC0415 - as above
    from gpushare.reading import source  # noqa: PLC0415 - as above

    over: list[pipeline.Overlay] = []
    if overlays:
        from gpushare.cli import inputs  # noqa: PLC0415 - as above

        over = inputs.read_overlays(intent, overlays)
    compilation = pipeline.check(*streams.read(intent, source.MAX_BYTES), over)
    form, text = report.chosen(style), compilation.source.texts
    report.report(compilation.findings, text, form, as_product=True, accepted=compilation.accepted)
    return report.verdict(compilation.findings, strict=strict)


def show(*, intent: str, overlays: tuple[str, ...], style: str, strict: bool, pools: tuple[str, ...]) -> ExitCode:
    """Write tables and maps, the Offer document, or a page: of all pools, or of the named ones."""
    import sys  # noqa: PLC0415 - as above

    from gpushare.cli import inputs, report, streams, terminal  # noqa: PLC0415 - as above

    read = inputs.compiled(intent, inputs.bundle_of(intent), overlays=overlays)
    report.report(read.findings, read.text.texts, report.chosen(None), as_product=False)
    code = report.verdict(read.findings, strict=strict)
    if code is not ExitCode.DONE:
        return code
    plan = inputs.only(read.plan, pools) if pools else read.plan
    if style == "json":
        from gpushare.core import emit  # noqa: PLC0415 - as above
        from gpushare.render import offer  # noqa: PLC0415 - as above

        streams.product(emit.json_text(offer.offer(plan)))
    elif style == "html":
        from gpushare.cli import show_page  # noqa: PLC0415 - as above
        from gpushare.core.diagnostics import is_error  # noqa: PLC0415 - as above

        streams.product(show_page.page(plan, [one for one in read.findings if not is_error(one)]))
    else:
        from gpushare.cli import plan_view  # noqa: PLC0415 - as above

        streams.page(plan_view.render(plan, terminal.detect_style(sys.stdout)))
    return ExitCode.DONE


def compile_bundle(  # noqa: PLR0913 - one for each argument of the command line
    *, intent: str, overlays: tuple[str, ...], output: str | None, check: bool, style: str | None, strict: bool,
) -> ExitCode:
    """Write the bundle, or whether it is current."""
    from gpushare.cli import inputs, report  # noqa: PLC0415 - as above

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
    from gpushare.core.wording import counted  # noqa: PLC0415 - as above

    say = streams.warn if quiet else streams.write
    try:
        if write:
            with Progress(f"writing {counted(len(read.artifacts), 'file')}"):
                changes = writer.write(read.artifacts, directory, read.memory)
            say(summary.written(read, changes, directory))
            return ExitCode.DONE
        changes = writer.changes(read.artifacts, directory)
    except writer.OutputError as problem:
        raise CouldNotRunError(problem.message, problem.hint) from problem
    say(summary.checked(changes, directory))
    return ExitCode.CHANGES if changes else ExitCode.DONE
