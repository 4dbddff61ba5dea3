"""`gpushare schema`: the JSON Schemas of what gpushare reads and writes."""

import click
from click.shell_completion import CompletionItem

from gpushare.cli import options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import resources


def names() -> tuple[str, ...]:
    """Return the schemas' names without their version, such as `intent` and `node-policy`."""
    return tuple(sorted(path.name.partition(".")[0] for path in resources.schema("intent.v1").parent.glob("*.v1.json")))


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


@click.command(cls=options.Command, short_help="Print the JSON Schemas.")
@click.argument("name", default="intent", shell_complete=_complete)
def command(name: str) -> ExitCode:
    """Print the JSON Schema (draft-07) of the intent, or of the document NAME.

    NAME is intent, workload, card, lock, pools, node-policy, tenancy, or one of
    the machine-readable outputs findings, offer, cards, plan, size,
    size-comparison, simulation, images, status, usage, advice, drift,
    live-plan, or fleet, fleet-result and fleet-plan of --fleet.

    For example:
      gpushare schema > intent.v1.json
      gpushare schema findings

    Editors complete and check an intent whose first line is
      # yaml-language-server: $schema=./intent.v1.json
    They offer the ids of the catalogue's cards and the MIG profiles, too.

    Exit codes:
      0  done
      2  there is no such schema
    """
    if name not in names():
        hint = options.did_you_mean(name, names()) or f"there are {', '.join(names())}"
        raise CouldNotRunError(f"there is no schema {name!r}", hint)
    streams.product(_intent() if name == "intent" else resources.schema(f"{name}.v1").read_text(encoding="utf-8"))
    return ExitCode.DONE


def _intent() -> str:
    from gpushare.cli import editor_schema  # noqa: PLC0415 - reads every card
    from gpushare.core import emit  # noqa: PLC0415 - as above

    return emit.json_text(editor_schema.intent())
