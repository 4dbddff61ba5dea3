"""A cluster to work with by hand. `python -m tests.e2e.cluster --help` says how, and `make cluster-up` is the short way."""

import argparse
import os
import re
import sys
import time
from typing import NoReturn

from tests.e2e.cluster.cluster import DEFAULT_NAME, Cluster
from tests.e2e.cluster.machine import MachineError


def main() -> int:
    """The exit code; what goes wrong is said in a sentence."""
    arguments = _parser().parse_args()
    try:
        match arguments.command:
            case "up":
                _up(Cluster(arguments.name))
            case "down":
                Cluster(arguments.name).down()
            case _:
                _kubectl(Cluster.running(arguments.name), arguments.arguments)
    except MachineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.cluster", description="A real Kubernetes cluster of two nodes.", allow_abbrev=False
    )
    parser.add_argument("--name", type=_name, default=DEFAULT_NAME, help="clusters of different names run side by side")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="bring it up anew; one of that name goes first")
    commands.add_parser("down", help="take it down and leave nothing, also after a crash")
    # Everything after `kubectl` is kubectl's, options too: so no character begins an option here.
    kubectl = commands.add_parser("kubectl", help="kubectl as administrator", add_help=False, prefix_chars="\0")
    kubectl.add_argument("arguments", nargs="*", metavar="ARGUMENT")
    return parser


def _name(text: str) -> str:
    """Short: paths of sockets begin with it."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError("a name has up to 40 small letters, digits and dashes between them")
    return text


def _up(cluster: Cluster) -> None:
    begun = time.monotonic()
    cluster.up()
    print(f"{len(cluster.nodes)} nodes after {time.monotonic() - begun:.0f} s: make kubectl{cluster.chosen} ARGS='get nodes'")


def _kubectl(cluster: Cluster, arguments: list[str]) -> NoReturn:
    """In place of this program, so that what watches, asks or runs in a terminal works as ever."""
    program, *rest = map(str, cluster.control_plane.kubectl_command(*arguments))
    os.execvpe(program, [program, *rest], cluster.control_plane.kubectl_environment())


sys.exit(main())
