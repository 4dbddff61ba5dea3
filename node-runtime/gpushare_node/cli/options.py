"""Options: parses the command line of `gpushare-node`; implements no command."""

import argparse
import re
from collections.abc import Sequence

from gpushare_node import __version__
from gpushare_node.cli.run import MEANINGS
from gpushare_node.membership import RELEASE_AFTER_SECONDS

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
STATE_FOLDER = "/var/lib/gpushare"
_EXAMPLES = {
    "": ("assert --policy policy.yaml --diff", "export --format json"),
    "apply": ("apply --policy policy.yaml --check --diff", "apply --policy policy.yaml", "apply --policy - --standalone"),
    "assert": ("assert --policy policy.yaml", "assert --policy policy.yaml --diff --format json"),
    "export": ("export", "export --format json"),
    "enforce": ("enforce --policy policy.yaml --dry-run --once", "enforce --policy policy.yaml --interval 500ms"),
    "release": ("release --standalone", "release --all-nodes --timeout 3m"),
}
PORT = 9408


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments. If they are wrong, ends the program with exit code 2 and a usage line."""
    return _parser().parse_args(argv)


def duration(text: str) -> float:
    """Return the seconds of `500ms`, `1s`, `10m` or `1h`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"invalid duration {text!r}: write 500ms, 1s, 10m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def _interval(text: str) -> float:
    seconds = duration(text)
    if not 0.1 <= seconds <= 60:
        raise argparse.ArgumentTypeError("the interval must be between 100ms and 1m")
    return seconds


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"invalid port {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpushare-node",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_epilog(""),
        description="Applies the pool's policy to this node's GPUs, and enforces the memory caps of containers.",
    )
    parser.add_argument("--version", action="version", version=f"gpushare-node {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_apply(_add(commands, "apply", "apply the policy to the GPUs; report Ready once the node matches it"))
    _add_assert(
        _add(commands, "assert", "check whether the node matches the policy: exit status 0 if it does, 1 if not, 2 if unknown")
    )
    _add(commands, "export", "print the GPUs' MIG layouts, with placements").add_argument(
        "--format", choices=("yaml", "json"), default="yaml", help="output format (yaml)"
    )
    _add_enforce(_add(commands, "enforce", "watch GPU processes and enforce the caps of containers; never changes hardware"))
    _add_release(_add(commands, "release", "make the GPUs exclusive again, and remove the runtime's labels and files"))
    return parser


def _epilog(command: str) -> str:
    """Return what follows the options: examples of the command, and what its exit codes mean."""
    examples = "".join(f"  gpushare-node {example}\n" for example in _EXAMPLES[command])
    return f"examples:\n{examples}\n{MEANINGS}"


def _add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=_epilog(name),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_apply(parser: argparse.ArgumentParser) -> None:
    _add_policy(parser)
    parser.add_argument("--check", action="store_true", help="change nothing; report what would change")
    parser.add_argument("--diff", action="store_true", help="print layouts before and after")
    parser.add_argument("--hold", action="store_true", help="while blocked, keep enforcing the previous caps")
    _add_release_after(parser)
    parser.add_argument(
        "--driver-timeout", type=duration, default=600.0, metavar="TIME", help="how long to wait for the driver (10m)"
    )
    _add_common(parser)


def _add_assert(parser: argparse.ArgumentParser) -> None:
    _add_policy(parser)
    parser.add_argument("--diff", action="store_true", help="print the current and the desired layouts")
    _add_common(parser)


def _add_enforce(parser: argparse.ArgumentParser) -> None:
    _add_policy(parser)
    parser.add_argument("--interval", type=_interval, default=1.0, metavar="TIME", help="time between two checks (1s)")
    _add_release_after(parser)
    parser.add_argument("--once", action="store_true", help="check once and exit; terminate nothing")
    parser.add_argument("--dry-run", action="store_true", help="report what would be done, and send no signal")
    parser.add_argument("--port", type=_port, default=PORT, help=f"port of /metrics, /healthz and /readyz ({PORT})")
    _add_state(parser)


def _add_release(parser: argparse.ArgumentParser) -> None:
    _add_standalone(parser)
    parser.add_argument(
        "--all-nodes", action="store_true", help="request all nodes to leave their pools, and wait; for the uninstall Job"
    )
    parser.add_argument(
        "--timeout", type=duration, default=180.0, metavar="TIME", help="how long to wait with --all-nodes (3m)"
    )
    parser.add_argument(
        "--observed", action="store_true", help="with --all-nodes: remove only conditions and annotations (adoption: observe)"
    )
    parser.add_argument(
        "--claim-templates", action="store_true", help="with --all-nodes: delete the release's ResourceClaimTemplates too"
    )
    parser.add_argument("--go-on", action="store_true", help="with --all-nodes: continue the uninstall if nodes do not answer")
    parser.add_argument(
        "--next-step",
        action="append",
        default=[],
        metavar="COMMAND",
        help="with --all-nodes: print at the end that this command is left to do; may be repeated",
    )
    _add_common(parser)


def _add_release_after(parser: argparse.ArgumentParser) -> None:
    text = "how long a node must be unselected before it leaves its pool (5m)"
    parser.add_argument("--release-after", type=duration, default=RELEASE_AFTER_SECONDS, metavar="TIME", help=text)


def _add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", required=True, metavar="FILE", help="the pool's policy; - reads standard input")
    _add_standalone(parser)


def _add_standalone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--standalone", action="store_true", help="run without an API server")


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir", default=STATE_FOLDER, metavar="DIR", help=f"directory for state that outlives the pod ({STATE_FOLDER})"
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    _add_state(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (text)")
