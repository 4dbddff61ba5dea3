"""`make golden`: compile every example anew. The one way to change the expected output under examples/."""

import os
import shutil
import sys
from pathlib import Path

from gpushare import pipeline
from gpushare.bundle import lock, writer
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


def examples() -> list[Path]:
    """Every example's folder, in order."""
    return sorted(path.parent for path in EXAMPLES.glob("*/intent.yaml"))


def compiled(example: Path) -> pipeline.Compilation:
    """The example compiled as on the first day: without a lock, so that no history gets into the expected output."""
    intent = example / "intent.yaml"
    return pipeline.compile_intent(intent.read_bytes(), str(intent.relative_to(EXAMPLES.parent)), lock.EMPTY)


def main() -> int:
    """Replace every bundle; 1 when an example does not compile or when CI runs this."""
    if os.environ.get("CI"):
        print("expected output is written by people, not by CI", file=sys.stderr)
        return 1
    for example in examples():
        compilation = compiled(example)
        if compilation.plan is None or not compilation.artifacts:
            print(*(finding.message for finding in compilation.findings), sep="\n", file=sys.stderr)
            return 1
        shutil.rmtree(example / "bundle", ignore_errors=True)
        writer.write(compilation.artifacts, example / "bundle", lock.EMPTY)
        print(f"{example.name}: {len(compilation.artifacts)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
