"""`make upload`: which files an index lacks, and what is refused before anything is uploaded."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.package_index import package_index
from tests.support.paths import ROOT
from tests.support.scripts import loaded


@pytest.fixture
def upload(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    yield loaded(".ci/upload.py")
    del sys.modules["publish"]


def test_files_that_the_index_has_are_left_out_and_must_be_the_same(upload: ModuleType, tmp_path: Path) -> None:
    for folder in ("dist", "index"):
        (tmp_path / folder).mkdir()
    names = ("gpushare_compiler-1.0-py3-none-any.whl", "gpushare_compiler-1.0.tar.gz")
    files = [tmp_path / "dist" / name for name in names]
    for file in files:
        file.write_text("a source")
    with package_index(tmp_path / "index") as index:
        assert upload.missing(f"{index}/simple", files) == files
        (tmp_path / "index" / files[0].name).write_text("a source")
        assert upload.missing(f"{index}/simple", files) == files[1:]
        (tmp_path / "index" / files[1].name).write_text("another source")
        with pytest.raises(upload.PublishError, match=r"another gpushare_compiler-1.0.tar.gz: a version is published once"):
            upload.missing(f"{index}/simple", files)
        with pytest.raises(upload.PublishError, match="no-index cannot be asked"):
            upload.missing("http://127.0.0.1:9/no-index", files)


@pytest.mark.parametrize("other", ["gpushare_node-1.0-py3-none-any.whl", "gpushare_node-1.0.tar.gz", "gpushare-1.0.tar.gz"])
def test_one_project_is_uploaded(
    other: str, upload: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second name is refused before an index is asked; the chart's package and the images are no distributions."""
    for name in ("gpushare_compiler-1.0-py3-none-any.whl", "gpushare_compiler-1.0.tar.gz", "gpushare-1.0.tgz", "SHA256SUMS"):
        (tmp_path / name).touch()
    assert {path.name.partition("-")[0] for path in upload.distributions(tmp_path)} == {"gpushare_compiler"}
    (tmp_path / other).touch()
    monkeypatch.setattr(upload, "DIST", tmp_path)
    monkeypatch.setattr(upload, "released", lambda: "1.0")
    monkeypatch.setattr(sys, "argv", ["upload.py", "--index", "http://127.0.0.1:9"])
    assert upload.main() == 1
    assert capsys.readouterr().err == f"upload: dist/ has {other}: nothing but gpushare-compiler is uploaded\n"


def test_nothing_is_uploaded_without_a_release(
    upload: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["publish"], "DIST", tmp_path)
    monkeypatch.setattr(sys, "argv", ["upload.py"])
    assert upload.main() == 1
    assert capsys.readouterr().err == "upload: dist/ has no release: run `make release`\n"
