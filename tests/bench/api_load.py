"""What the runtime asks of the API server: requests, watch events and bytes for each node, measured on a real API server.

Nodes are simulated by `tests.e2e.scale.load`, which says what is real. `python -m tests.bench.api_load 1000`: one size alone.
`--backend dra`: the same pool served by NVIDIA's DRA driver, at rest.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.history import Line, tell
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.scale.rollout import DRA, PLUGIN, bundles, control_plane, inside, installed

SIZES = {200: (12.0, 12.0), 1000: (3.0, 1.0)}
"""Nodes, and how much faster than the server's own time passes, at rest and queued: as fast as two cores keep up with."""
_STATES = ("rest", "queue")
MAX_NODES = 5000
_AT_MOST = 0.02
_LATE_SECONDS = 5.0


def measure(cluster: Cluster, nodes: int, folder: Path, backend: str = PLUGIN) -> dict[str, Any]:
    """All figures of so many nodes; the API server is restarted when the nodes ask for it."""
    former, new = bundles(folder, backend)
    found: dict[str, Any] = {}
    with installed(cluster, former):
        for state, speed in zip(_STATES, SIZES.get(nodes, SIZES[1000]), strict=True):
            if state == "queue" and backend == DRA:
                continue  # Another number of shares is no change of a node of DRA.
            simulation = inside(cluster, "tests.e2e.scale.load", state, "--nodes", nodes, "--speed", speed, former, new)
            for document in _documents(simulation, cluster):
                print(f"  {nodes} nodes: {json.dumps(document)}", file=sys.stderr, flush=True)
                found |= document
    return found


def _documents(simulation: subprocess.Popen[str], cluster: Cluster) -> Iterator[dict[str, Any]]:
    """What it writes. SystemExit if it fails."""
    assert simulation.stdin is not None
    assert simulation.stdout is not None
    for line in simulation.stdout:
        document = json.loads(line)
        yield document
        if "restart" in document:
            cluster.control_plane.stop_api_server()
            cluster.control_plane.start_api_server()
            simulation.stdin.write("\n")
            simulation.stdin.flush()
    if simulation.wait():
        raise SystemExit("the simulation failed: what went wrong is above")


def report(figures: dict[int, dict[str, Any]]) -> Iterator[Line]:
    """The table. What is not measured is the largest that is, at so many times the nodes."""
    yield Line("load on the API server, for each node (simulated nodes with 50 images and one pod each):")
    yield Line("   nodes  state   requests/s  watch events/s  bookmarks/s  bytes/s   of the cluster: requests/s      MB/s")
    for nodes, found in figures.items():
        for state in _measured(found):
            late = found[state]["late"]
            yield _row(nodes, state, found[state], f"  the machine fell {late:.0f} s behind" if late > _LATE_SECONDS else "")
    largest = figures[max(figures)]
    for state in _measured(largest):
        yield _row(MAX_NODES, state, largest[state], f"  extrapolated from {max(figures):,} nodes")
    worst = max(found["rest"]["requests"] for found in figures.values())
    yield Line(f"at rest at most {worst:.4f} requests a node and second (at most {_AT_MOST})", {"api_load.rest": worst})
    for nodes, found in figures.items():
        once = found["restarted"]
        cost = f"{once['requests']:.1f} requests and {once['bytes'] / 1000:.1f} kB a node"
        yield Line(
            f"restart of the API server, {nodes} nodes: {cost}, and {once['unanswered']:.1f} attempts that nobody "
            f"answered, within {once['minutes']} min, until a minute has no more than one request a node"
        )
    for nodes, found in figures.items():
        for state in ("restarted", *_measured(found)):
            kinds = ", ".join(f"{name} {count:.4f}" for name, count in found[state]["kinds"].items())
            yield Line(f"  {nodes} nodes, {state}: {kinds}")


def _measured(found: dict[str, Any]) -> list[str]:
    return [state for state in _STATES if state in found]


def _row(nodes: int, state: str, one: dict[str, Any], remark: str) -> Line:
    each = f"{one['requests']:10.4f}  {one['events']:14.4f}  {one['bookmarks']:11.4f}  {one['bytes']:7.0f}"
    return Line(
        f"  {nodes:>6,}  {state:6}  {each}   {one['requests'] * nodes:27.1f}  {one['bytes'] * nodes / 1e6:8.3f}{remark}"
    )


def lines(sizes: Sequence[int] = tuple(SIZES), backend: str = PLUGIN) -> Iterator[Line]:
    """Measure on one API server after the other."""
    figures = {}
    for nodes in sizes:
        with control_plane() as cluster, tempfile.TemporaryDirectory() as folder:
            figures[nodes] = measure(cluster, nodes, Path(folder), backend)
    yield from report(figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--backend", choices=(PLUGIN, DRA), default=PLUGIN)
    chosen = parser.parse_args()
    tell(lines(tuple(chosen.sizes), chosen.backend))
