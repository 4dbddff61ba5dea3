"""`gpushare explain`: what a finding's code means, with a bad and a good example."""

import sys

import click
from click.shell_completion import CompletionItem

from gpushare.cli import options, streams, terminal
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cli.terminal import BOLD, CYAN, Style, visible
from gpushare.core import finding_texts


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    codes = (code for code in finding_texts.codes() if code.startswith(incomplete.upper()))
    return [CompletionItem(code, help=finding_texts.load(code).title) for code in codes]


@click.command(cls=options.Command, short_help="Explain a finding's code, with examples.")
@click.argument("code", required=False, shell_complete=_complete)
def command(code: str | None) -> ExitCode:
    """Explain the finding CODE, or list all codes.

    What it means, why it matters, a bad and a good example.

    For example:
      gpushare explain GS402

    Exit codes:
      0  done
      2  there is no such code
    """
    look = terminal.look(sys.stdout)
    if code is None:
        texts = [finding_texts.load(each) for each in finding_texts.codes()]
        rows = [(text.code, text.severity, text.title) for text in texts]
        streams.say(terminal.table(("CODE", "SEVERITY", "WHAT IS WRONG"), rows, look))
        return ExitCode.DONE
    if code.upper() not in finding_texts.codes():
        hint = options.did_you_mean(code.upper(), finding_texts.codes()) or "`gpushare explain` lists all codes"
        raise CouldNotRunError(f"no finding has the code {code!r}", hint)
    streams.say(_rendered(finding_texts.load(code.upper()).markdown, look))
    return ExitCode.DONE


def _rendered(markdown: str, look: Style) -> str:
    """Return Markdown for a terminal: headings are highlighted, fenced examples are indented, the rest is unchanged."""
    shown: list[str] = []
    fenced = False
    for line in map(visible, markdown.splitlines()):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            shown.append(f"    {look.paint(line, CYAN)}".rstrip())
        elif line.startswith("#"):
            shown.append(look.paint(line.lstrip("#").strip(), BOLD))
        else:
            shown.append(line)
    return "\n".join(shown).strip() + "\n"
