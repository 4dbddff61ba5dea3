"""`gpushare size`: how users, their memory and a card fit together: which mode, how many nodes, and the intent for it."""

import sys
from typing import TYPE_CHECKING

import click

from gpushare.cli import cards, options, streams, terminal
from gpushare.cli.exits import CouldNotRunError, ExitCode

if TYPE_CHECKING:
    from gpushare.catalog.cards import Card
    from gpushare.sizing.demand import Need, Sizing

MODES = ("exclusive", "mig", "mig-replicas", "time-slicing", "mps")
MAX_NUMBER = 1_000_000
"""The largest number of users and of nodes: an intent's `expected` ends there."""


@click.command(cls=options.Command, short_help="Compute which mode and how many nodes fit.")
@click.option("--card", "card_id", metavar="ID", required=True, shell_complete=cards.complete, help="See `gpushare cards`.")
@click.option("--memory", metavar="SIZE", help="What one user needs, such as 4Gi.")
@click.option(
    "--users", type=click.IntRange(1, MAX_NUMBER), metavar="N", help="How many users at once. Default: as many as fit."
)
@click.option("--need", "needs", multiple=True, metavar="NxSIZE", help="Users of several sizes: --need 40x4Gi --need 3x20Gi.")
@click.option("--nodes", type=click.IntRange(1, MAX_NUMBER), metavar="N", help="Default: as many as are needed.")
@click.option("--gpus-per-node", "gpus", type=click.IntRange(1, 16), default=1, metavar="N", help="Default: 1.")
@click.option("--isolation", type=click.Choice(["memory", "none"]), default="none",
              help="memory: only modes that isolate memory in hardware. Default: none.")
@click.option("--mode", type=click.Choice(MODES), help="Choose the best of this mode.")
@click.option("--intent", "only_intent", is_flag=True, help="Print the intent of the chosen option, nothing else.")
@options.product_format()
def command(  # noqa: PLR0913, PLR0917 - one for each option
    card_id: str, memory: str | None, users: int | None, needs: tuple[str, ...], nodes: int | None, gpus: int,
    isolation: str, mode: str | None, only_intent: bool, style: str,
) -> ExitCode:
    """Compare every way to share a card for users who need memory at once.

    The table has what each way gives, what it isolates, how many nodes it needs
    and what of their memory no user asked for. `*` marks the best: the
    strongest isolation that suffices, else the fewest nodes. A compile of its
    intent gives the same shares and caps. `?` marks what no source confirms.

    For example:
      gpushare size --card t4 --memory 4Gi --users 40
      gpushare size --card t4 --memory 4Gi --users 40 --nodes 5
      gpushare size --card h100-sxm5-80gb --gpus-per-node 8 --memory 9Gi --nodes 2
      gpushare size --card a100-sxm4-80gb --need 40x8Gi --need 3x35Gi
      gpushare size --card t4 --memory 4Gi --users 40 --intent > intent.yaml

    Exit codes:
      0  done
      1  the users do not fit: not on so many nodes, or not on this card
      2  an option is wrong
    """
    from gpushare.sizing.demand import Demand, Variant  # noqa: PLC0415 - `--help` needs no catalogue
    from gpushare.sizing.sizing import size  # noqa: PLC0415 - as above

    demand = Demand(
        card=_card(card_id), needs=_needs(memory, users, needs), gpus_per_node=gpus, nodes=nodes,
        in_hardware=isolation == "memory",
    )
    if demand.nodes is None and demand.needs[0].users is None:
        raise CouldNotRunError("neither users nor nodes are given", "add --users N, --nodes N or both")
    found = size(demand, Variant(mode) if mode else None)
    if only_intent:
        _print_intent(found)
    elif style == "json":
        from gpushare.core import emit  # noqa: PLC0415 - as above
        from gpushare.sizing.document import document  # noqa: PLC0415 - as above

        streams.product(emit.json_text(document(found)))
    else:
        from gpushare.cli import size_view  # noqa: PLC0415 - as above

        streams.write(size_view.render(found, terminal.detect_style(sys.stdout)))
    return ExitCode.FINDINGS if found.best is None or found.best.suffices is False else ExitCode.DONE


def _card(card_id: str) -> "Card":
    from gpushare.catalog import cards as catalog  # noqa: PLC0415 - as above

    if card_id not in catalog.ids():
        from gpushare.catalog import card_search  # noqa: PLC0415 - needed only when something is wrong

        hint = "; ".join((*card_search.hints(card_id, catalog.Catalog()), "`gpushare cards` lists all"))
        raise CouldNotRunError(f"the catalogue has no card {card_id!r}", hint)
    return catalog.load(card_id)


def _needs(memory: str | None, users: int | None, needs: tuple[str, ...]) -> "tuple[Need, ...]":
    """Return the needs, the largest first, equal sizes together. Raises CouldNotRunError."""
    from gpushare.sizing.demand import MAX_SIZES, Need  # noqa: PLC0415 - as above

    if needs and (memory is not None or users is not None):
        raise CouldNotRunError("--need is not for use with --memory or --users", "write each of them as --need NxSIZE")
    if memory is None and not needs:
        raise CouldNotRunError("what one user needs is not given", "add --memory SIZE, such as --memory 4Gi")
    if memory is not None:
        return (Need(memory_bytes=_bytes(memory, "--memory"), users=users),)
    together: dict[int, int] = {}
    for need in needs:
        number, _, size = need.partition("x")
        if not (number.isascii() and number.isdecimal() and 0 < len(number) < 8 and int(number)):
            raise CouldNotRunError(f"--need {need!r} is not NxSIZE", "write the number of users and their size, such as 40x4Gi")
        each = _bytes(size, "--need")
        together[each] = together.get(each, 0) + int(number)
    if len(together) > MAX_SIZES:
        raise CouldNotRunError(f"there are {len(together)} sizes", f"round them up to {MAX_SIZES} sizes at most")
    if sum(together.values()) > MAX_NUMBER:
        raise CouldNotRunError(f"there are {sum(together.values())} users", f"{MAX_NUMBER} are the most")
    return tuple(Need(memory_bytes=each, users=number) for each, number in sorted(together.items(), reverse=True))


def _bytes(text: str, option: str) -> int:
    from gpushare.core.units import MIB, meant_sizes, parse_quantity  # noqa: PLC0415 - as above

    size = parse_quantity(int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else text)
    if size is None:
        hint = f"write {' or '.join(meant_sizes(text) or ('it as in an intent, such as 4Gi or 3500Mi',))}"
        raise CouldNotRunError(f"{option}: invalid quantity of memory {text!r}", hint)
    if size < MIB:
        bare = f"a bare number counts bytes; for GiB write {text}Gi" if text.isdecimal() else "write it in Mi or Gi"
        raise CouldNotRunError(f"{option}: {size} bytes are less than 1Mi", bare)
    return size


def _print_intent(found: "Sizing") -> None:
    """Write the intent to stdout; to stderr that it does not suffice, or that there is none."""
    from gpushare.core import emit  # noqa: PLC0415 - as above
    from gpushare.sizing.document import intent  # noqa: PLC0415 - as above

    if found.best is not None:
        streams.product(emit.yaml_text(intent(found.best)))
    if found.best is None or found.best.suffices is False:
        streams.warn(f"gpushare: {found.reason}\n")
