"""Reads the logs of the Job's pods from stdin, and prints what each share did: `kubectl logs ... | python3 collect.py`."""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from typing import Any


def main() -> int:
    """Print a table, or JSON. 1 if shares are missing: then the others had more of the GPU than they will have."""
    parser = argparse.ArgumentParser(description="Summarise the results of a benchmark.")
    parser.add_argument("--shares", type=int, metavar="N", help="how many there must be: .spec.completions of the Job")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    results = sorted(read(sys.stdin), key=lambda one: one["share"])
    if not results:
        print("no result: have the pods ended?", file=sys.stderr)
        return 1
    told = summary(results)
    print(json.dumps(told, indent=2) if arguments.format == "json" else table(told))
    missing = (arguments.shares or len(results)) - len(results)
    if missing:
        print(f"{missing} of {arguments.shares} shares have no result: the GPUs were not full", file=sys.stderr)
    return 1 if missing else 0


def read(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the results in the lines, each pod's last one; kubectl may write the pod's name before a line."""
    found = {}
    for line in lines:
        begin = line.find('{"benchmark": ')
        if begin >= 0:
            try:
                result = json.loads(line[begin:])["benchmark"]
                share, counts = int(result["share"]), [int(one) for one in result["counts"]]
                found[share] = {
                    "share": share, "node": str(result["node"]), "counts": counts, "peakMiB": int(result["peakMiB"]),
                }
            except (ValueError, KeyError, TypeError):
                print(f"not a result: {line[:100]!r}", file=sys.stderr)
    return list(found.values())


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the throughput of each share and of all, without the first and the last second, which may be cut."""
    seconds = min(len(one["counts"]) for one in results)
    window = slice(1, seconds - 1) if seconds > 2 else slice(0, seconds)
    shares = [
        {"share": one["share"], "node": one["node"], "perSecond": round(statistics.mean(one["counts"][window]), 2),
         "peakMiB": one["peakMiB"]}
        for one in results
    ]
    rates = [one["perSecond"] for one in shares]
    return {"shares": shares, "seconds": len(range(seconds)[window]), "least": min(rates), "median": statistics.median(rates),
            "most": max(rates), "all": round(sum(rates), 2)}


def table(told: dict[str, Any]) -> str:
    """Return the summary as text."""
    lines = [f"{'SHARE':>5}  {'NODE':<30}  {'PER SECOND':>10}  {'PEAK MiB':>8}"]
    lines += [f"{one['share']:>5}  {one['node']:<30}  {one['perSecond']:>10}  {one['peakMiB']:>8}" for one in told["shares"]]
    last = f"{len(told['shares'])} shares, {told['seconds']} s: all {told['all']} per second; of one share at least"
    return "\n".join([*lines, "", f"{last} {told['least']}, median {told['median']}, at most {told['most']}"])


if __name__ == "__main__":
    sys.exit(main())
