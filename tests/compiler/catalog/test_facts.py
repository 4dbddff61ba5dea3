"""The table of facts is quicker than the files that it holds, and never says anything else."""

from pathlib import Path

import pytest

from gpushare.catalog import facts
from gpushare.core import resources
from gpushare.reading import source
from gpushare.vendors.nvidia import NVIDIA

FILES = sorted(path for folder in (resources.cards(NVIDIA.catalogue), resources.upstream()) for path in folder.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_table_says_what_the_file_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_yaml = source.read(path.read_bytes(), path.name).data
    monkeypatch.setattr(source, "read", lambda *_: pytest.fail(f"{path.name} is not in profiles/facts.jsonl: run `make docs`"))
    by_table = facts.read(path)
    assert (repr(by_table), bool(by_table)) == (repr(by_yaml), True)


def test_a_file_that_was_edited_is_read_itself(tmp_path: Path) -> None:
    edited = tmp_path / "t4.yaml"
    edited.write_text((resources.cards(NVIDIA.catalogue) / "t4.yaml").read_text() + "more: true\n")
    assert facts.read(edited) == {**facts.read(resources.cards(NVIDIA.catalogue) / "t4.yaml"), "more": True}
