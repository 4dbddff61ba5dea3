"""A bundle's chart in a real registry, installed by digest or by version."""

import subprocess
from pathlib import Path

from gpushare import __version__, pipeline
from gpushare.bundle import lock
from tests.e2e.registry.registries import registry
from tests.support import helm
from tests.support.paths import ROOT

WHERE = ("--namespace", "gpu-system")


def run(major: int, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [str(helm.helm(major)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def objects(text: str) -> str:
    """What is rendered, without the lines before it on what Helm has pulled."""
    return text.partition("---\n")[2]


def test_pushed_chart_renders_like_the_folder(tmp_path: Path) -> None:
    intent = ROOT / "examples/02-t4-notebooks/intent.yaml"
    for artifact in pipeline.compile_intent(intent.read_bytes(), "intent.yaml", lock.EMPTY).artifacts:
        file = tmp_path / "bundle" / artifact.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(artifact.text)
    chart = tmp_path / "bundle" / "chart"
    run(4, "package", chart, "--destination", tmp_path)
    (tmp_path / "registry").mkdir()
    with registry(tmp_path / "registry") as host:
        pushed = run(4, "push", tmp_path / f"gpushare-{__version__}.tgz", f"oci://{host}/clusters/physics", "--plain-http")
        [digest] = [word for word in (pushed.stdout + pushed.stderr).split() if word.startswith("sha256:")]
        reference = f"oci://{host}/clusters/physics/gpushare"
        for major, how in (
            (4, (f"{reference}@{digest}",)),
            (4, (reference, "--version", __version__)),
            (3, (reference, "--version", __version__)),
        ):
            rendered = objects(run(major, "template", "gpushare", *how, "--plain-http", *WHERE).stdout)
            assert "gpushare-notebooks-policy" in rendered
            assert rendered == objects(run(major, "template", "gpushare", chart, *WHERE).stdout)
