"""`make golden`: compile every example again, and render the charts of tests/chart/expected.py. The one way to change either.

Owns which files of a bundle are expected output: all of the first example's, and of the others' those that are not the chart's.
"""

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from gpushare import pipeline
from gpushare.bundle import lock, writer
from gpushare.bundle.artifact import Artifact
from tests.chart import expected
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
CHART = ROOT / "charts" / "gpushare"


def examples() -> list[Path]:
    """Every example's folder, in order."""
    return sorted(path.parent for path in EXAMPLES.glob("*/intent.yaml"))


def compiled(example: Path) -> pipeline.Compilation:
    """The example compiled as on the first day: without a lock, so that no history gets into the expected output."""
    intent = example / "intent.yaml"
    return pipeline.compile_intent(intent.read_bytes(), str(intent.relative_to(EXAMPLES.parent)), lock.EMPTY)


def is_common(artifact: Artifact) -> bool:
    """Whether this is the chart's own file, as it stands in charts/gpushare."""
    chart, _, path = artifact.path.partition("/")
    file = CHART / path
    return chart == "chart" and file.is_file() and artifact.text == file.read_text()


def kept(example: Path, artifacts: Iterable[Artifact]) -> list[Artifact]:
    """The artifacts that are committed beside the example's intent."""
    is_whole = example == examples()[0]
    return [artifact for artifact in artifacts if is_whole or not is_common(artifact)]


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
        artifacts = kept(example, compilation.artifacts)
        writer.write(artifacts, example / "bundle", lock.EMPTY)
        print(f"{example.name}: {len(artifacts)} of {len(compilation.artifacts)} files")
    expected.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
