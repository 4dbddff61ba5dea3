"""What hostile intents cost `check`, against a right intent of two thousand pools in the same run."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.history import Line, tell
from tests.compiler.cli.test_hostile import HOSTILE, checked, pools


def lines() -> Iterator[Line]:
    """The costliest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, _, plain, _ = checked(pools(2000).encode(), folder)
        texts = {title: text if isinstance(text, bytes) else text.encode() for title, (text, _) in HOSTILE.items()}
        costs = {title: checked(text, folder)[2:] for title, text in texts.items()}
    worst = max(costs, key=lambda title: costs[title][0])
    seconds, memory = costs[worst][0], max(mib for _, mib in costs.values())
    yield Line(
        f"hostile intents, {len(costs)} kinds: at most {seconds:.2f} s of CPU ({worst}), "
        f"a right one of 2,000 pools {plain:.2f} s: ratio {seconds / plain:.1f} (at most 10); at most {memory:.0f} MiB",
        {"hostile.worst": seconds / plain},
    )


if __name__ == "__main__":
    tell(lines())
