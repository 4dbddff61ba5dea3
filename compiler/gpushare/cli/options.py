"""Arguments and options that several commands share, defined and explained once."""

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

import click

from gpushare.core.wording import nearest

_Function = TypeVar("_Function", bound=Callable[..., Any])
Decorator = Callable[[_Function], _Function]


class Command(click.Command):
    """A command whose help text is printed as written: examples and exit codes are tables, not prose to be wrapped."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the docstring, indented."""
        lines = cleandoc(self.help or "").split("\n")
        formatter.write("\n" + "\n".join(f"  {line}" if line else "" for line in lines) + "\n")


def number(most: int) -> Callable[[object], int]:
    """Return the type of an option that counts from 1 to `most`; click's own writes `[1<=x<=1000000]` into the help."""

    def counted(value: object) -> int:
        text = str(value)
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= most):
            raise click.BadParameter(f"{text[:40]!r} is not a number from 1 to {most}")
        return int(text)

    return counted


INTENT = click.Path(exists=False, allow_dash=True)


def intent_argument() -> Decorator[Any]:
    """INTENT: a file, or `-` for stdin. The command itself reports, with a hint, if it cannot be read."""
    return click.argument("intent", type=INTENT)


def overlays(what: str = "INTENT") -> Decorator[Any]:
    """--overlay, repeatable: files that are merged into the intent."""
    return click.option(
        "--overlay",
        "overlays",
        type=INTENT,
        multiple=True,
        metavar="FILE",
        help=f"Merge FILE into {what} (JSON merge patch); repeatable.",
    )


def prices(text: str = "Prices of a GPU-hour, by pool or card, in place of spec.prices.") -> Decorator[Any]:
    """--prices: what a GPU-hour costs."""
    return click.option("--prices", type=INTENT, metavar="FILE", help=text)


def findings_format() -> Decorator[Any]:
    """--format of findings."""
    return click.option(
        "--format",
        "style",
        type=click.Choice(("text", "json", "github", "sarif")),
        help="How findings are written. Default: text; github on GitHub Actions.",
    )


def product_format(*styles: str) -> Decorator[Any]:
    """--format of output that people and programs read: text or json, unless there are more. --html, if that is one of them."""
    choice = click.Choice(styles or ("text", "json"))
    form = click.option("--format", "style", type=choice, default="text", help="Default: text.")
    page = click.option("--html", "style", flag_value="html", help="The same as --format html.")
    return (lambda command: form(page(command))) if "html" in styles else form


def strict() -> Decorator[Any]:
    """--strict: warnings count as errors."""
    return click.option("--strict", is_flag=True, help="Treat warnings as errors.")


def did_you_mean(name: str, known: tuple[str, ...]) -> str:
    """Return a hint with the known words most similar to `name`: those that begin with it, else similar ones; or empty."""
    longer = [word for word in known if name and word.startswith(name)]
    close = longer or nearest(name, known)
    return f"did you mean {', '.join(close)}?" if close else ""
