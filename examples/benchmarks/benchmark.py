"""Runs in each pod of the Job: multiplies matrices on its share of a GPU, and counts how often in each second.

All pods begin at the second START, so that every share of the node is in use. One line of JSON is the result.
"""

import json
import os
import sys
import time


def main() -> int:
    """Wait for the start, work, and print the result. 1 if it came too late."""
    start, seconds, size = (int(os.environ[name]) for name in ("START", "SECONDS_EACH", "SIZE"))
    import torch  # of the image

    one, other = (torch.rand(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    one @ other  # the first call loads libraries
    torch.cuda.synchronize()
    late = time.time() - start
    if late > 0:
        print(f"ready {late:.0f} s after the start: give the Job more time with --start-in", file=sys.stderr)
        return 1
    time.sleep(-late)
    counts = [0] * seconds
    while (second := int(time.time() - start)) < seconds:
        one @ other
        torch.cuda.synchronize()
        counts[second] += 1
    result = {
        "share": int(os.environ["JOB_COMPLETION_INDEX"]), "node": os.environ["NODE"], "counts": counts,
        "peakMiB": torch.cuda.max_memory_allocated() >> 20,
    }
    print(json.dumps({"benchmark": result}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
