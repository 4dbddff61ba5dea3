"""Arguments and options that several commands share, so that they are spelt and explained once."""

from collections.abc import Callable
from inspect import cleandoc
from textwrap import indent
from typing import Any, TypeVar

import click

from gpushare.cli import daily

_Function = TypeVar("_Function", bound=Callable[..., Any])
Decorator = Callable[[_Function], _Function]


class Command(click.Command):
    """A command whose help text stands as it is written: examples and exit codes are tables, not prose to be filled."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the docstring, indented."""
        formatter.write("\n" + indent(cleandoc(self.help or ""), "  ") + "\n")


INTENT = click.Path(exists=False, allow_dash=True)


def intent_argument() -> Decorator[Any]:
    """INTENT: a file, or `-` for stdin. Whether it can be read is told by the command, with a hint."""
    return click.argument("intent", type=INTENT)


def findings_format() -> Decorator[Any]:
    """--format of findings."""
    return click.option(
        "--format",
        "style",
        type=click.Choice(daily.FINDINGS_FORMATS),
        help="How findings are written. Default: text; github on GitHub Actions.",
    )


def product_format(*styles: str) -> Decorator[Any]:
    """--format of a product that people and programs read: text or json, unless there are more."""
    choice = click.Choice(styles or daily.PRODUCT_FORMATS)
    return click.option("--format", "style", type=choice, default="text", help="Default: text.")


def strict() -> Decorator[Any]:
    """--strict: warnings count as errors."""
    return click.option("--strict", is_flag=True, help="Treat warnings as errors.")


def nearest(name: str, known: tuple[str, ...]) -> str:
    """A hint that names the known words most like `name`: those that begin so, else those spelt alike; empty when none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for what was mistyped

    longer = [word for word in known if name and word.startswith(name)]
    close = longer or get_close_matches(name, known, n=3, cutoff=0.6)
    return f"did you mean {', '.join(close)}?" if close else ""
