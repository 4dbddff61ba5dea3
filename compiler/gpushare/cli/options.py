"""Arguments and options that several commands share, defined and explained once."""

from collections.abc import Callable
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpushare.core.wording import nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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


def only_pools() -> Decorator[Any]:
    """--pool, repeatable: the pools that are shown."""
    return click.option(
        "--pool", "pools", multiple=True, metavar="NAME", shell_complete=_complete_pool, help="Only this pool; repeatable."
    )


def _complete_pool(context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the pools of the last intent so far that begin with the incomplete word; none before an intent is given."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for the shell's own calls

    from gpushare.cli import streams  # noqa: PLC0415 - as above
    from gpushare.cli.exits import CouldNotRunError  # noqa: PLC0415 - as above
    from gpushare.reading import source  # noqa: PLC0415 - as above

    # While --pool lacks its value click assigns no argument, and leaves them all in `args`.
    intent = context.params.get("intent") or next(iter((*(context.params.get("sides") or ()), *context.args)[::-1]), None)
    if not intent or intent == "-":
        return []
    try:
        document = source.read(*streams.read(intent, source.MAX_BYTES)).data
    except CouldNotRunError:
        return []
    spec = document.get("spec") if isinstance(document, dict) else None
    pools = spec.get("pools") if isinstance(spec, dict) else None
    return [CompletionItem(name) for name in (pools if isinstance(pools, dict) else ()) if name.startswith(incomplete)]


def did_you_mean(name: str, known: tuple[str, ...]) -> str:
    """Return a hint with the known words most similar to `name`: those that begin with it, else similar ones; or empty."""
    longer = [word for word in known if name and word.startswith(name)]
    close = longer or nearest(name, known)
    return f"did you mean {', '.join(close)}?" if close else ""
