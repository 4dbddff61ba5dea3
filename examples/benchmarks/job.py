"""Prints a Job that fills every share of a pool: `gpushare show intent.yaml --format json | python3 job.py --pool POOL`."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

WORK = Path(__file__).with_name("benchmark.py")


def main() -> int:
    """Read the plan of a cluster from stdin; print a List of a ConfigMap and a Job as JSON, which kubectl applies."""
    parser = argparse.ArgumentParser(description="Print a Job with a pod for every share of a pool.")
    parser.add_argument("--pool", required=True)
    parser.add_argument("--resource", help="which of the pool's resources, if it has several")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="fill as many nodes (default: 1)")
    parser.add_argument("--image", required=True, help="an image with python3 and a PyTorch for the nodes' driver")
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="how long the shares work (default: 60)")
    parser.add_argument("--start-in", type=int, default=300, metavar="N",
                        help="seconds until all shares begin: the image must be pulled by then (default: 300)")
    parser.add_argument("--size", type=int, default=4096, metavar="N", help="rows of the matrices (default: 4096)")
    arguments = parser.parse_args()
    pools = json.load(sys.stdin)["pools"]
    if arguments.pool not in pools:
        parser.error(f"there is no pool {arguments.pool}: {', '.join(sorted(pools))}")
    resources = pools[arguments.pool]["resources"]
    if arguments.resource is None and len(resources) != 1 or arguments.resource not in {None, *resources}:
        parser.error(f"name one of the pool's resources with --resource: {', '.join(sorted(resources))}")
    resource = arguments.resource or next(iter(resources))
    json.dump(job(arguments, resource, resources[resource]["perNode"] * arguments.nodes), sys.stdout, indent=2)
    print()
    return 0


def job(arguments: argparse.Namespace, resource: str, shares: int) -> dict[str, Any]:
    """Return the List: as many pods as shares, all at once, none of which is tried again."""
    name = f"benchmark-{arguments.pool}"
    variables = {"START": int(time.time()) + arguments.start_in, "SECONDS_EACH": arguments.seconds, "SIZE": arguments.size}
    container = {
        "name": "work", "image": arguments.image, "command": ["python3", "/benchmark/benchmark.py"],
        "env": [*({"name": key, "value": str(value)} for key, value in variables.items()),
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"limits": {resource: 1}},
        "volumeMounts": [{"name": "benchmark", "mountPath": "/benchmark"}],
    }
    pod = {
        "restartPolicy": "Never", "nodeSelector": {"gpushare.dev/pool": arguments.pool}, "containers": [container],
        "volumes": [{"name": "benchmark", "configMap": {"name": name}}],
    }
    spec = {"completionMode": "Indexed", "completions": shares, "parallelism": shares, "backoffLimit": 0,
            "template": {"spec": pod}}
    work = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {WORK.name: WORK.read_text()}}
    return {"apiVersion": "v1", "kind": "List",
            "items": [work, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}]}


if __name__ == "__main__":
    sys.exit(main())
