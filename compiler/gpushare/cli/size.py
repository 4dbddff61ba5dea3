"""`gpushare size`: how users, their memory and a card fit together: which mode, how many nodes, and the intent for it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce, wraps
from typing import Any

import click

from gpushare.cli import catalogue, option_files, options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import emit
from gpushare.core.diagnostics import Finding, is_error
from gpushare.core.units import MIB, meant_sizes, parse_quantity
from gpushare.facts.catalog import card_search
from gpushare.facts.catalog import cards as catalog
from gpushare.facts.catalog.cards import Card, Catalog
from gpushare.offering import modes
from gpushare.offering.modes.traits import MAX_SIZES, Demand, Need
from gpushare.reading import source
from gpushare.report import simulation
from gpushare.report import size as report
from gpushare.study.sizing import CardComparison, compare, intent, size
from gpushare.study.workload import requests
from gpushare.study.workload.requests import Workload
from gpushare_node.contract.struct import Struct, replace

_WORDS = tuple(variant.word for variant in modes.VARIANTS)
MAX_NUMBER = 1_000_000
"""The largest number of users and of nodes: an intent's `expected` ends there."""


class Users(Struct):
    """Who needs memory at the same time: the needs, the largest first, and the pods from which they follow, if they do."""

    needs: tuple[Need, ...]
    pods: Workload | None = None


def _memory(option: str) -> Callable[[str], int]:
    """Return the type of an amount of memory, in bytes. Raises CouldNotRunError for what is none."""

    def parsed(text: str) -> int:
        size = parse_quantity(int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else text)
        if size is None:
            hint = f"write {' or '.join(meant_sizes(text) or ('it as in an intent, such as 4Gi or 3500Mi',))}"
            raise CouldNotRunError(f"{option}: invalid quantity of memory {text!r}", hint)
        if size < MIB:
            bare = f"a bare number counts bytes; for GiB write {text}Gi" if text.isdecimal() else "write it in Mi or Gi"
            raise CouldNotRunError(f"{option}: {size} bytes are less than 1Mi", bare)
        return size

    return parsed


def _need(text: str) -> Need:
    """Return the need of `40x4Gi`. Raises CouldNotRunError."""
    number, _, each = text.partition("x")
    if not (number.isascii() and number.isdecimal() and 0 < len(number) < 8 and int(number)):
        raise CouldNotRunError(f"--need {text!r} is not NxSIZE", "write the number of users and their size, such as 40x4Gi")
    return Need(memory_bytes=_memory("--need")(each), users=int(number))


_USERS = (
    click.option("--memory", type=_memory("--memory"), metavar="SIZE", help="What one user needs, such as 4Gi."),
    click.option(
        "--users",
        type=options.number(MAX_NUMBER),
        metavar="N",
        help="How many users at once, with --memory. Default: as many as fit on --nodes.",
    ),
    click.option(
        "--need",
        "needs",
        type=_need,
        multiple=True,
        metavar="NxSIZE",
        help="In place of --memory and --users: users of several sizes, as in --need 40x4Gi --need 3x20Gi.",
    ),
    click.option(
        "--workload",
        type=options.INTENT,
        metavar="FILE",
        help="In place of users: pods that ask for memory, as for `gpushare simulate`; they may come and go.",
    ),
)


def _users_options(function: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Add the options that say who the users are, and pass them to the command as one argument, `users`."""

    @wraps(function)
    def called(
        *, memory: int | None, users: int | None, needs: tuple[Need, ...], workload: str | None, **given: Any
    ) -> ExitCode:
        if workload is None:
            return function(users=Users(needs=_needs(memory, users, needs)), **given)
        if memory is not None or users is not None or needs:
            raise CouldNotRunError("--workload is not for use with --memory, --users or --need", "leave one of them out")
        pods = _pods(workload)
        return function(users=Users(needs=_most_at_once(pods), pods=pods), **given)

    return reduce(lambda made, option: option(made), reversed(_USERS), called)


@click.command(cls=options.Command)
@click.option(
    "--card",
    "card_ids",
    metavar="ID",
    required=True,
    multiple=True,
    shell_complete=catalogue.complete,
    help="See `gpushare cards`; repeat it to compare cards.",
)
@click.option(
    "--own-cards",
    "own",
    type=options.INTENT,
    metavar="INTENT",
    help="An intent that describes cards of your own in spec.cards.",
)
@_users_options
@click.option(
    "--nodes", type=options.number(MAX_NUMBER), metavar="N", help="How many nodes there are. Default: as many as are needed."
)
@click.option("--gpus-per-node", "gpus", type=options.number(16), default=1, metavar="N", help="At most 16. Default: 1.")
@click.option(
    "--isolation",
    type=click.Choice(["memory", "none"]),
    default="none",
    help="memory: leave out modes whose users share the memory of a device. Default: none.",
)
@options.prices("Prices of a GPU-hour, by card: show the cost, and compare cards by it.")
@click.option("--mode", type=click.Choice(_WORDS), help="Choose the best option of this mode. Default: of all modes.")
@click.option("--intent", "only_intent", is_flag=True, help="Print the best option's intent, nothing else.")
@options.product_format()
def command(  # noqa: PLR0913 - one for each option that is not of the users
    *,
    card_ids: tuple[str, ...],
    own: str | None,
    users: Users,
    nodes: int | None,
    gpus: int,
    isolation: str,
    prices: str | None,
    mode: str | None,
    only_intent: bool,
    style: str,
) -> ExitCode:
    """Compare the ways to share a card, for users who need memory at the same time.

    Give --memory with --users, --nodes or both; or --need, once for each size; or
    --workload with pods of at most four sizes, in place of users.

    The table has for each way the shares of a node, the cap of a share, what
    isolates memory and faults, how much memory is left over, and how many nodes
    all users need. `*` marks the best: the strongest isolation that fits on
    --nodes, else the fewest nodes. A compile of its intent gives the same shares
    and caps. `?` marks what no source confirms.

    Of several cards, the table has the best way of each. The card with the fewest
    nodes comes first or, if FILE of --prices has a line for each card, such as
    `t4: 0.35 EUR/h`, the one that costs least.

    For example:
      gpushare size --card t4 --memory 4Gi --users 40
      gpushare size --card t4 --card l4 --card a10 --memory 4Gi --users 40
      gpushare size --card t4 --card l4 --memory 4Gi --users 40 --prices prices.yaml
      gpushare size --card t4 --memory 4Gi --users 40 --nodes 5
      gpushare size --card h100-sxm5-80gb --gpus-per-node 8 --memory 9Gi --nodes 2
      gpushare size --card a100-sxm4-80gb --need 40x8Gi --need 3x35Gi
      gpushare size --card t4 --workload pods.csv
      gpushare size --card my-card --own-cards intent.yaml --memory 4Gi --users 9
      gpushare size --card t4 --memory 4Gi --users 40 --intent > intent.yaml

    Exit codes:
      0  all users fit
      1  the users do not fit: not on --nodes, or not on the card
      2  an option is wrong, or a file cannot be read
    """
    if nodes is None and users.needs[0].users is None:
        raise CouldNotRunError("neither users nor nodes are given", "add --users N, --nodes N or both")
    chosen = dict(_cards(card_ids, own))
    known = Catalog(own={card.id: card for card in chosen})
    priced = {} if prices is None else option_files.read_prices(prices, (), known)
    demands = [
        Demand(
            card=card,
            described=described,
            needs=users.needs,
            gpus_per_node=gpus,
            nodes=nodes,
            in_hardware=isolation == "memory",
            price=priced.get(card.id),
        )
        for card, described in chosen.items()
    ]
    compared = compare(tuple(size(demand, mode, users.pods) for demand in demands))
    if only_intent:
        _print_intent(compared)
    else:
        streams.report(report.report(compared), style)
    if users.pods is not None:
        lines = [f"left out: {line}" for line in simulation.left_out(users.pods.left_out)]
        lines += [f"assumed: {line}" for line in users.pods.assumed]
        streams.warn("".join(f"gpushare: {line}\n" for line in lines))
    best = compared.best.best if compared.best else None
    return ExitCode.FINDINGS if best is None or best.suffices is False else ExitCode.DONE


def _print_intent(compared: CardComparison) -> None:
    """Write the intent to stdout; to stderr that it does not suffice, or that there is none."""
    found = compared.best or compared.sizings[0]
    if found.best is not None:
        streams.product(emit.yaml_text(intent(found.demand, found.best)))
    if found.best is None or found.best.suffices is False:
        streams.warn(f"gpushare: {found.reason}\n")


def _needs(memory: int | None, users: int | None, needs: tuple[Need, ...]) -> tuple[Need, ...]:
    """Return the needs, the largest first, equal sizes together. Raises CouldNotRunError."""
    if needs and (memory is not None or users is not None):
        raise CouldNotRunError("--need is not for use with --memory or --users", "write each of them as --need NxSIZE")
    if memory is None and not needs:
        raise CouldNotRunError("what one user needs is not given", "add --memory SIZE, such as --memory 4Gi")
    if memory is not None:
        return (Need(memory_bytes=memory, users=users),)
    together: dict[int, int] = {}
    for need in needs:
        together[need.memory_bytes] = together.get(need.memory_bytes, 0) + (need.users or 0)
    if len(together) > MAX_SIZES:
        raise CouldNotRunError(f"there are {len(together)} sizes", f"round them up to {MAX_SIZES} sizes at most")
    if sum(together.values()) > MAX_NUMBER:
        raise CouldNotRunError(f"there are {sum(together.values())} users", f"{MAX_NUMBER} is the limit")
    return tuple(Need(memory_bytes=each, users=number) for each, number in sorted(together.items(), reverse=True))


def _pods(file: str) -> Workload:
    """Return the pods of a workload, without the pools and cards that they name. Raises CouldNotRunError."""
    read = option_files.read_workload(file)
    other = sum(pod.memory_bytes is None for pod in read.pods)
    if other:
        hint = "for parts of GPUs, whole GPUs and resources, use gpushare simulate"
        raise CouldNotRunError(f"{other} of {len(read.pods)} pods do not ask for memory", hint)
    named = any(pod.pool or pod.cards for pod in read.pods)
    pods = tuple(replace(pod, pool="", cards=()) for pod in read.pods)
    assumed = (*read.assumed, *(("pools and cards that pods name do not count",) if named else ()))
    return replace(read, pods=pods, assumed=assumed)


def _most_at_once(workload: Workload) -> tuple[Need, ...]:
    """Return how many pods of each size there are at once, at most; the largest first. Raises CouldNotRunError."""
    found = requests.most_at_once(workload.pods, lambda pod: pod.memory_bytes)
    if len(found) > MAX_SIZES:
        raise CouldNotRunError(
            f"there are {len(found)} sizes", f"round them up to {MAX_SIZES} sizes at most, or use gpushare simulate"
        )
    return tuple(Need(memory_bytes=size or 0, users=number) for size, number in sorted(found.items(), reverse=True))


def _cards(card_ids: tuple[str, ...], own: str | None) -> Iterator[tuple[Card, Mapping[str, Any] | None]]:
    """Yield each card that is named, once, and its entry of `spec.cards` if it is one of the user's own."""
    described = _described(own) if own is not None else {}
    known = Catalog(own={card_id: catalog.build(card_id, document) for card_id, document in described.items()})
    for card_id in dict.fromkeys(card_ids):
        if "," in card_id and known.get(card_id) is None:
            raise CouldNotRunError(f"{card_id!r} is not a card", "write --card once for each card")
        found = catalogue.chosen(card_id, known, "--own-cards INTENT reads cards of your own" if own is None else "")
        yield found, described.get(card_id)


def _described(intent: str) -> Mapping[str, Any]:
    """Return `spec.cards` of an intent, of which nothing else is read. Raises CouldNotRunError for a card that is wrong."""
    from gpushare.rules import mig  # noqa: PLC0415 - with all rules, and few calls name cards of their own

    text = source.read(*streams.read(intent, source.MAX_BYTES))
    _refuse(text, text.findings)
    spec = text.data.get("spec") if isinstance(text.data, dict) else None
    found = spec.get("cards") if isinstance(spec, dict) else None
    if not isinstance(found, dict) or not found:
        raise CouldNotRunError(f"{text.file} has no cards of its own", card_search.DESCRIBE)
    _refuse(text, catalog.check(found))
    _refuse(text, mig.check_own_grids({card_id: catalog.build(card_id, each) for card_id, each in found.items()}))
    return found


def _refuse(text: source.Source, findings: Iterable[Finding]) -> None:
    """Raise CouldNotRunError for the first error."""
    wrong = next((finding for finding in findings if is_error(finding)), None)
    if wrong is not None:
        found = text.locate(wrong)
        where = f"{text.file}:{found.span.line}:{found.span.column}" if found.span else text.file
        raise CouldNotRunError(f"{where}: {found.message} ({found.code})", "; ".join(found.hints))
