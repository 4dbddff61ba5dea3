"""`make docs`: writes the generated pages, what two schemas say of vendors, and the schemas of the commands' JSON documents."""

import json
import re
import sys
from pathlib import Path

import click

from gpushare.cli.commands import COMMANDS, commands
from gpushare.core import resources
from gpushare.facts.catalog import cards, upstream
from gpushare.report import advice, comparison, drift, images, live_plan, show, simulation, size, status, usage
from gpushare.report import cards as cards_report
from gpushare.vendors import DEFAULT, OTHERS
from gpushare_node.contract.reasons import CONDITION, ConditionReason
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.reporting.metrics import Registry

sys.path[:0] = [str(Path(__file__).parents[1])]
from docs import rights  # noqa: E402 - as a script this file has its own folder on the path alone

DOCS = Path(__file__).parent
NOTE = "<!-- Written by `make docs`; edits are lost. -->"


def findings_page() -> str:
    """Return the page with every code, its severity and its title."""
    rows = []
    for path in sorted(resources.findings().glob("GS*.md")):
        title, severity = re.findall(r"^# GS\d{3} (.+)$|^Severity: (\w+)", path.read_text(), re.MULTILINE)[:2]
        rows.append(f"| {path.stem} | {severity[1]} | {title[0]} |")
    head = "`gpushare explain CODE` prints the meaning of a finding, with a bad and a good example. Codes are never reused."
    groups = (
        "GS0 text, GS1 shape, GS2 pools and nodes, GS3 sharing, GS4 MIG, GS5 memory, GS6 quotas, GS7 platform,\n"
        "GS80 accepted warnings, GS85 and GS86 imports, GS9 cards."
    )
    return "\n".join([NOTE, "", "# Findings", "", head, "", groups, "", "| code | severity | |", "|---|---|---|", *rows, ""])


def cards_page() -> str:
    """Return the page with every card, what matters for sharing, and which of its facts are not confirmed."""
    rows = []
    for card in map(cards.load, cards.ids()):
        memory = "unknown" if card.memory_mib is None else f"{card.memory_mib} MiB"
        profiles = ", ".join(profile.name for profile in card.mig.profiles if not profile.has_attributes) if card.mig else "—"
        doubt = ", ".join(card.unconfirmed) or "—"
        rows.append(f"| `{card.id}` | {card.name} | {memory} | {card.mps_max_replicas} | {profiles} | {doubt} |")
    head = (
        "`gpushare cards CARD` draws every legal layout, and says which of them want a newer driver than MIG does; with\n"
        "`--format json` the latter is `mig.layoutDrivers`. Memory is the smallest total that anyone has reported."
    )
    table = ["| id | name | memory | MPS clients | MIG profiles | unconfirmed |", "|---|---|---|---|---|---|"]
    return "\n".join([NOTE, "", "# Cards", "", head, "", *table, *rows, ""])


def reasons_page() -> str:
    """Return the page with every reason of the node condition, what it means and what to do."""
    rows = [
        f"| {reason.word} | {_status(reason)} | {reason.value.means} | {reason.value.remedy} |" for reason in ConditionReason
    ]
    head = f"The node condition `{CONDITION}` has one of these reasons; its message names the GPUs, pods or programs concerned."
    hint = (
        "`kubectl describe node NODE` shows it, and `kubectl get events` what led to it. The list is closed. *Failure*:\n"
        "a person must act; the pool's DaemonSet names one such node, and an Application of Argo CD is `Degraded`."
    )
    table = ["| reason | status | it means | what to do |", "|---|---|---|---|"]
    return "\n".join([NOTE, "", f"# Reasons of {CONDITION}", "", head, "", hint, "", *table, *rows, ""])


def _status(reason: ConditionReason) -> str:
    return f"{reason.value.is_ready}, *failure*" if reason.value.is_failure else str(reason.value.is_ready)


def metrics_page() -> str:
    """Return the page with every metric of enforcement, its kind, its labels and its help text."""
    registry = Registry()
    EnforcementMetrics(registry)
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(f'`{label}`' for label in family.labels) or '—'} | {family.text} |"
        for family in registry
    ]
    head = "The container `enforce` of every pod of the runtime serves these metrics on port 9408, at `/metrics`."
    table = ["| metric | type | labels | it is |", "|---|---|---|---|"]
    return "\n".join([NOTE, "", "# Metrics of the node runtime", "", head, "", *table, *rows, ""])


def alerts_page() -> str:
    """Return the page with a runbook for every alert."""
    from gpushare.render.monitoring.alerts import ALERTS  # noqa: PLC0415 - it reads the reasons, which are written before

    head = (
        "What each alert of [monitoring](monitoring.md) means, and what to do. With `monitoring.runbooks` in the intent,\n"
        "the annotation `runbook_url` of an alert is the address of its section on your copy of this page."
    )
    lines = [NOTE, "", "# Alerts", "", head, ""]
    for alert in ALERTS:
        held = "at once" if alert.hold == "0m" else f"after {alert.hold}"
        lines += [f"## {alert.name}", "", f"Severity `{alert.severity}`, {held}.", "", alert.means, "", alert.remedy, ""]
        lines += ["```text", alert.expr, "```", ""]
    return "\n".join(lines)


def commands_page() -> str:
    """Return the page with the help of every command, as a terminal of 80 columns shows it."""
    program = click.Context(commands, info_name="gpushare", terminal_width=80, **commands.context_settings)
    lines = ["## gpushare", "", "```text", program.get_help().rstrip(), "```", ""]
    for name in COMMANDS:
        command = commands.get_command(program, name)
        if command is None:
            raise LookupError(name)
        text = click.Context(command, parent=program, info_name=name).get_help().rstrip()
        lines += [f"## gpushare {name}", "", "```text", text, "```", ""]
    head = "What `--help` prints. `gpushare completion` prints the completion for your shell."
    return "\n".join([NOTE, "", "# Commands", "", head, "", *lines])


DOCUMENTS = (
    comparison.DOCUMENT,
    advice.DOCUMENT,
    cards_report.DOCUMENT,
    drift.DOCUMENT,
    images.DOCUMENT,
    live_plan.DOCUMENT,
    show.DOCUMENT,
    simulation.DOCUMENT,
    size.DOCUMENT,
    size.COMPARISON,
    status.DOCUMENT,
    usage.DOCUMENT,
)
"""JSON documents of commands whose schema is written from their description."""


def _between(text: str, begin: str, end: str, inside: str) -> str:
    """Return the text with other text between two lines that it has once."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + inside + end + after


def intent_schema() -> str:
    """Return the intent's schema with what it says of each vendor's stack; all else of it is written by hand."""
    text, sections = resources.schema("intent.v1").read_text(encoding="utf-8"), ""
    for word, vendor in OTHERS.items():
        charts = list(vendor.charts)
        release = upstream.vendor_chart(charts[0]).version
        whose = f"{vendor.name}'s"
        fields = {
            "stack": {
                "description": f"{whose} GPU operator, its device plugin alone, or one that is installed already.",
                "enum": [*charts, "existing"],
                "default": charts[0],
            },
            "version": {
                "description": f"Version of {whose} chart. Default: the newest that this gpushare knows.",
                "type": "string",
                "examples": [release],
            },
            "namespace": {
                "description": f"Where {whose} programs run.",
                "$ref": "#/definitions/dnsLabel",
                "default": vendor.namespace,
            },
            "values": {"description": f"Values for {whose} chart, merged over the generated ones.", "type": "object"},
        }
        lines = ",\n".join(f'            "{name}": {json.dumps(field)}' for name, field in fields.items())
        sections += f"""
        "{word}": {{
          "description": "{whose} stack, in a cluster with the cards of both vendors.",
          "type": "object",
          "additionalProperties": false,
          "properties": {{
{lines}
          }}
        }},"""
    stacks = [*DEFAULT.charts, "existing", *(stack for vendor in OTHERS.values() for stack in vendor.charts)]
    text = _between(text, '"enum": ["gpu-operator", ', "],\n", ", ".join(map(json.dumps, stacks[1:])))
    return _between(text, '"examples": [["gpu-operator", "monitoring"]]\n        },', '\n        "backend": {', sections)


def lock_schema() -> str:
    """Return the lock's schema with the vendors; all else of it is written by hand."""
    text, sections = resources.schema("lock.v1").read_text(encoding="utf-8"), ""
    for word, vendor in OTHERS.items():
        where = '{"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\\\\n)"}'
        sections += f"""
    "{word}": {{
      "description": "The stack of {vendor.name}'s cards, and where it is; of the last bundle with such cards, where no \
pool has them. Absent without any.",
      "type": "object",
      "additionalProperties": false,
      "required": ["namespace", "stack"],
      "properties": {{
        "namespace": {where},
        "stack": {{"enum": {json.dumps([*vendor.charts, "existing"])}}}
      }}
    }},"""
    begin = '      "uniqueItems": true,\n      "items": {"enum": ['
    text = _between(text, begin, "]}\n    },", ", ".join(map(json.dumps, OTHERS)))
    _, _, rest = text.partition(begin)
    enum = rest[: rest.index("]}\n    },") + len("]}\n    },")]
    return _between(text, begin + enum, '\n    "dra": {', sections)


PAGES = {
    "compiler/gpushare/schemas/intent.v1.json": intent_schema,
    "compiler/gpushare/schemas/lock.v1.json": lock_schema,
    "docs/findings.md": findings_page,
    "docs/cards.md": cards_page,
    "docs/reasons.md": reasons_page,
    "docs/metrics.md": metrics_page,
    "docs/alerts.md": alerts_page,
    "docs/commands.md": commands_page,
    "docs/rights.md": lambda: rights.page(NOTE),
    **{f"compiler/gpushare/schemas/{one.name}.v1.json": one.schema for one in DOCUMENTS},
}


def main() -> int:
    """Write every generated file."""
    for name, page in PAGES.items():
        (DOCS.parent / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
