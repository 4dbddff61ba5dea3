"""A bundle that is not as gpushare wrote it: a finding with its position and exit code 2, and never a crash."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from gpushare import __version__, cli
from tests.support import broken_bundles, scale
from tests.support.paths import ROOT

Call = Callable[..., tuple[int, str, str]]
SEEDS = range(24)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run gpushare in this process: its exit code, and what it wrote."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gpushare", *map(str, words)])
        code = cli.call()
        gc.enable()
        written = capsys.readouterr()
        return code, written.out, written.err

    return run


@pytest.mark.parametrize("seed", scale.part(SEEDS, 3))
def test_damaged_bundle_never_crashes(seed: int, call: Call, tmp_path: Path) -> None:
    ends_well(seed, call, tmp_path)


def ends_well(seed: int, call: Call, folder: Path) -> None:
    """Read a broken bundle with every command that reads one."""
    rng = Random(seed)
    example = rng.choice(broken_bundles.EXAMPLES)
    bundle = broken_bundles.write(broken_bundles.broken(example, rng), folder / "bundle")
    whole = broken_bundles.write(broken_bundles.files(example), folder / "whole")
    form = rng.choice(("text", "json", "markdown", "html"))
    imported = sorted(path for path in bundle.rglob("*.yaml") if "templates" not in path.parts)
    for words in (
        ("plan", "--format", form, bundle, whole),
        ("plan", "--exit-code", whole, bundle),
        ("images", bundle),
        ("import", *imported),
    ):
        code, out, err = call(*words)
        assert code in ({0, 1} if "import" in words else {0, 1, 2, 3}), err
        if "plan" in words and code == 2:
            assert f"{bundle}/" in err, err
            assert out == ""


HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata:\n  name: lab\nspec:\n"
TRUNCATED = HEAD + "  pools:\n    hpc:\n      card: t4\n      gpusP"


@pytest.mark.parametrize(
    ("path", "change", "place", "said"),
    [
        ("intent.yaml", lambda _: TRUNCATED.encode(), "9:7", "is not what gpushare writes"),
        ("intent.yaml", lambda _: b"", "1:1", "the document is empty"),
        ("intent.yaml", lambda text: text.replace(b"      gpusPerNode: 2\n", b""), None, "gpusPerNode"),
        (
            "intent.yaml",
            lambda text: text.replace(b"kind: ClusterIntent", b"kind: ClusterIntent\nshelf: 1"),
            "4:1",
            "shelf",
        ),
        ("intent.yaml", lambda text: text.replace(b"    notebooks:\n", b"    laptops:\n"), None, "do not belong together"),
        ("chart/values.yaml", lambda text: b"<<<<<<< HEAD\n" + text + b"=======\n>>>>>>> main\n", "1:1", "merge conflict"),
        ("chart/values.yaml", lambda text: text.replace(b"enforce: deny", b"enforce: [deny]"), "20:12", "enforce"),
        ("chart/files/policies/notebooks.yaml", lambda text: text.replace(b"mode: ", b"mood: "), None, "mood"),
        ("gpu-operator/values.yaml", lambda _: b"driver: [1]\n", "1:9", "driver"),
        ("namespace.yaml", lambda _: b"a: \xff\n", "1:4", "UTF-8"),
        ("argocd/apps/gpushare.yaml", lambda _: b"- a\n", "1:1", "argocd/apps/gpushare.yaml"),
        ("gpushare.lock.yaml", lambda text: text[:40], "1:1", "gpushare.lock.yaml cannot be read"),
    ],
)
def test_fault_is_reported_at_its_position(  # noqa: PLR0917 - the parameters and the fixtures
    path: str, change: Callable[[bytes], bytes], place: str | None, said: str, call: Call, tmp_path: Path
) -> None:
    found = broken_bundles.files("15-argocd")
    found[path] = change(found[path])
    bundle = broken_bundles.write(found, tmp_path / "bundle")
    code, out, err = call("plan", bundle, ROOT / "examples/15-argocd/intent.yaml")
    assert (code, out) == (2, "")
    assert said in err
    assert f"{bundle}/{path}:{place or ''}" in err


def test_a_bundle_of_another_release_names_that_release(call: Call, tmp_path: Path) -> None:
    found = broken_bundles.files("15-argocd")
    lock = found["gpushare.lock.yaml"]
    found["gpushare.lock.yaml"] = lock.replace(__version__.encode(), b"9.9.9", 1)
    found["intent.yaml"] += b"racks: {}\n"
    bundle = broken_bundles.write(found, tmp_path / "bundle")
    code, _, err = call("plan", bundle, bundle)
    assert code == 2
    assert f"gpushare 9.9.9 wrote the bundle and this is {__version__}" in err
