"""`python -m tests.cluster up|down|kubectl …`: a cluster to work with by hand."""

import subprocess
import sys
import time

from tests.cluster.cluster import Cluster


def main() -> int:
    """The sub-command's exit code."""
    match sys.argv[1:]:
        case ["up"]:
            begun = time.monotonic()
            cluster = Cluster()
            cluster.up()
            print(f"{len(cluster.nodes)} nodes after {time.monotonic() - begun:.0f} s: make kubectl ARGS='get nodes'")
            return 0
        case ["down"]:
            Cluster().down()
            return 0
        case ["kubectl", *arguments]:
            plane = Cluster.running().control_plane
            done: subprocess.CompletedProcess[str] = plane.kubectl(*arguments)
            sys.stdout.write(done.stdout)
            sys.stderr.write(done.stderr)
            return done.returncode
        case _:
            print(__doc__, file=sys.stderr)
            return 2


sys.exit(main())
