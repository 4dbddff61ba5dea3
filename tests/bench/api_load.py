"""What the runtime asks of the API server: requests, watch events and bytes for each node, measured on a real API server.

Nodes are simulated by `tests.e2e.scale.load`, which says what is real. `python -m tests.bench.api_load 1000`: one size alone.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.scale.rollout import bundles, control_plane, inside, installed

SIZES = {200: (12.0, 12.0), 1000: (3.0, 3.0)}
"""Nodes, and how much faster than the server's own time passes, at rest and queued: as fast as two cores keep up with."""
LARGEST = 5000
_AT_MOST = 0.02
_LATE_SECONDS = 5.0


def measure(cluster: Cluster, nodes: int, folder: Path) -> dict[str, Any]:
    """All figures of so many nodes; the API server is restarted when the nodes ask for it."""
    former, new = bundles(folder)
    found: dict[str, Any] = {}
    with installed(cluster, former):
        rest, queue = SIZES.get(nodes, SIZES[1000])
        options = ("--nodes", nodes, "--rest-speed", rest, "--queue-speed", queue)
        process = inside(cluster, "tests.e2e.scale.load", *options, former, new)
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            document = json.loads(line)
            found |= document
            print(f"  {nodes} nodes: {line.strip()}", file=sys.stderr, flush=True)
            if "restart" in document:
                cluster.control_plane.stop_api_server()
                cluster.control_plane.start_api_server()
                process.stdin.write("\n")
                process.stdin.flush()
        if process.wait():
            raise SystemExit("the simulation failed: what went wrong is above")
    return found


def report(figures: dict[int, dict[str, Any]]) -> None:
    """The table. What is not measured is the largest that is, at so many times the nodes."""
    print("load on the API server, for each node (simulated nodes with 50 images and one pod each):")
    print("   nodes  state   requests/s  watch events/s  bookmarks/s  bytes/s   of the cluster: requests/s      MB/s")
    for nodes, found in figures.items():
        for state in ("rest", "queue"):
            late = found[state]["late"]
            _row(nodes, state, found[state], f"  the machine fell {late:.0f} s behind" if late > _LATE_SECONDS else "")
    largest = figures[max(figures)]
    for state in ("rest", "queue"):
        _row(LARGEST, state, largest[state], f"  extrapolated from {max(figures):,} nodes")
    worst = max(found["rest"]["requests"] for found in figures.values())
    print(f"at rest at most {worst:.4f} requests a node and second (at most {_AT_MOST})")
    for nodes, found in figures.items():
        once = found["restarted"]
        print(f"restart of the API server, until a minute after it answers, {nodes} nodes: {once['requests']:.1f} requests and "
              f"{once['bytes'] / 1000:.1f} kB a node, and {once['unanswered']:.1f} attempts that nobody answered")
    for nodes, found in figures.items():
        for state in ("rest", "restarted", "queue"):
            kinds = ", ".join(f"{name} {count:.4f}" for name, count in found[state]["kinds"].items())
            print(f"  {nodes} nodes, {state}: {kinds}")


def _row(nodes: int, state: str, one: dict[str, Any], remark: str) -> None:
    each = f"{one['requests']:10.4f}  {one['events']:14.4f}  {one['bookmarks']:11.4f}  {one['bytes']:7.0f}"
    print(f"  {nodes:>6,}  {state:6}  {each}   {one['requests'] * nodes:27.1f}  {one['bytes'] * nodes / 1e6:8.3f}{remark}")


def main(sizes: tuple[int, ...] = tuple(SIZES)) -> int:
    """Measure on one API server after the other, and print."""
    figures = {}
    for nodes in sizes:
        with control_plane() as cluster, tempfile.TemporaryDirectory() as folder:
            figures[nodes] = measure(cluster, nodes, Path(folder))
    report(figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(tuple(map(int, sys.argv[1:])) or tuple(SIZES)))
