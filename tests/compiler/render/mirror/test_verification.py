"""`images --verify` with programs in the place of skopeo and crane: what they are asked, and what their answers mean."""

import json
import time
from pathlib import Path

import pytest

from gpushare.reading import schema
from gpushare.render.mirror import verification
from tests.compiler.cli.process import gpushare
from tests.support.paths import ROOT

BUNDLE = ROOT / "examples/10-air-gapped-dgx/bundle"
CALL = ("images", BUNDLE, "--os", "x", "--verify")
UNKNOWN = {
    "skopeo": 'time="2026-01-01T00:00:00Z" level=fatal msg="Error parsing image name: reading manifest: manifest unknown: x"',
    "crane": "HEAD request failed, falling back on GET\nError: GET https://r/v2/x: MANIFEST_UNKNOWN: manifest unknown",
}
ASKED = {"skopeo": "inspect --raw docker://", "crane": "digest -- "}
PLAIN = {"skopeo": "inspect --raw --tls-verify=false docker://", "crane": "digest --insecure -- "}


def stand_in(folder: Path, name: str, script: str) -> Path:
    """A program that notes what it is asked, each line whole, and then does this; the folder for PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f'#!/bin/sh\necho "$*" >> {folder}/asked\n{script}\n')
    (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("program", ["skopeo", "crane"])
def test_each_image_is_checked_and_missing_ones_are_listed(tmp_path: Path, program: str) -> None:
    script = f"case \"$*\" in *dcgm*) echo '{UNKNOWN[program]}' >&2; exit 1;; esac; echo sha256:0"
    path = {"PATH": str(stand_in(tmp_path / "bin", program, script))}
    done = gpushare(*CALL, "--format", "json", environment=path)
    assert (done.returncode, done.stderr) == (3, "")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("images.v1"), document)
    targets = [one["target"] for one in document["images"]]
    assert [one["missing"] for one in document["images"]] == ["dcgm" in target for target in targets]
    assert [one["missing"] for one in document["charts"]] == [False]
    chart = "mirror.site.example/charts/gpu-operator:v26.7.0"
    asked = (tmp_path / "bin/asked").read_text().splitlines()
    assert sorted(asked) == sorted(ASKED[program] + target for target in (*targets, chart))
    lines = gpushare(*CALL, "--plain-http", environment=path).stdout.splitlines()
    lacking = [target for target in targets if "dcgm" in target]
    there = len(targets) + 1 - len(lacking)
    assert lacking
    assert lines == [*(f"missing {one}" for one in lacking), f"{there} of {len(targets) + 1} images and charts are there"]
    asked = (tmp_path / "bin/asked").read_text().splitlines()[len(asked) :]
    assert sorted(asked) == sorted(PLAIN[program] + target for target in (*targets, chart))


def test_skopeo_is_preferred_over_crane(tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "crane", "exit 1")
    assert gpushare(*CALL, environment={"PATH": str(stand_in(tmp_path / "bin", "skopeo", ""))}).returncode == 0


def test_missing_skopeo_and_crane_are_both_reported(tmp_path: Path) -> None:
    done = gpushare(*CALL, environment={"PATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    assert "--verify runs skopeo or crane, and neither is on PATH" in done.stderr


@pytest.mark.parametrize("program", ["skopeo", "crane"])
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'first line' >&2; echo 'GET https://x: UNAUTHORIZED: authentication required' >&2; exit 1",
            "GET https://x: UNAUTHORIZED: authentication required",
        ),
        ("printf '\\377 is no text' >&2; exit 1", "\ufffd is no text"),
        ("exit 7", "exit status 7"),
        ("kill -9 $$", "exit status -9"),
    ],
)
def test_other_registry_errors_are_reported_verbatim(tmp_path: Path, program: str, script: str, said: str) -> None:
    done = gpushare(*CALL, environment={"PATH": str(stand_in(tmp_path / "bin", program, script))})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{program} does not say whether mirror.site.example/" in done.stderr
    assert f"is there: {said}\n" in done.stderr
    assert f"those of {program}" in done.stderr


def test_a_program_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "crane", "")
    (tmp_path / "bin/crane").write_bytes(b"\x7fELF")
    done = gpushare(*CALL, environment={"PATH": str(tmp_path / "bin")})
    assert done.returncode == 2
    assert "crane cannot be run: Exec format error" in done.stderr


def test_registry_check_has_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for what the program has started, such as a credential helper."""
    monkeypatch.setenv("PATH", str(stand_in(tmp_path / "bin", "skopeo", "/bin/sleep 20 & wait")))
    monkeypatch.setattr(verification, "SECONDS", 0.2)
    begun = time.monotonic()
    with pytest.raises(verification.VerificationError, match="skopeo did not say within"):
        verification.missing(["reg.example.org/a:1"], plain_http=False)
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    ("said", "is_missing"),
    [
        ("reading manifest 1 in reg.example.org/a: manifest unknown: The named manifest is not known to the registry.", True),
        ("reading manifest 1 in reg.example.org/a: name unknown: repository name not known to registry", True),
        ("GET https://reg.example.org/v2/a/manifests/1: NAME_UNKNOWN: repository name not known to registry", True),
        ("GET https://reg.example.org/v2/a/manifests/1: NOT_FOUND: artifact a:1 not found", True),
        ("reading manifest 1 in reg.example.org/a: unknown: repository a/b not found", True),
        ("GET https://reg.example.org/v2/a/manifests/1: unexpected status code 404 Not Found", True),
        ("reading manifest 1 in reg.example.org/a: StatusCode: 404, page not found", True),
        ("error getting credentials: exec: docker-credential-x: executable file not found in $PATH", False),
        ("dial tcp: lookup reg.example.org: no such host", False),
        ("denied: requested access to the resource is denied", False),
        ("unexpected status code 503 Service Unavailable", False),
    ],
)
def test_only_a_registrys_not_found_answer_makes_an_image_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, *, is_missing: bool
) -> None:
    (tmp_path / "said").write_text(said)
    monkeypatch.setenv("PATH", str(stand_in(tmp_path / "bin", "crane", f"/bin/cat {tmp_path}/said >&2; exit 1")))
    if is_missing:
        assert verification.missing(["reg.example.org/a:1"], plain_http=False) == ("reg.example.org/a:1",)
    else:
        with pytest.raises(verification.VerificationError, match="does not say"):
            verification.missing(["reg.example.org/a:1"], plain_http=False)
