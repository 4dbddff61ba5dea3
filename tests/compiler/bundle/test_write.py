"""Writing a bundle: what is replaced, what is removed, and what is never touched."""

import os
from pathlib import Path

import pytest

from gpushare.bundle import lock, writer
from gpushare.bundle.artifact import Artifact
from gpushare.bundle.lock import EMPTY
from gpushare.bundle.writer import ChangeKind, OutputError
from tests.compiler.bundle.bundles import FOREIGN, NEW, OLD, bundle, found, lay, memory, texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the old bundle and files of somebody else."""
    target = tmp_path / "bundle"
    lay(target, texts(OLD) | FOREIGN)
    return target


def kinds(changes: tuple[writer.FileChange, ...]) -> dict[str, str]:
    return {change.path: change.kind.value for change in changes}


def test_a_first_bundle_is_written_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    writer.write(bundle(OLD), tmp_path / "a" / "b", EMPTY)
    assert found(tmp_path) == {f"a/b/{path}": text for path, text in texts(OLD).items()}


def test_first_bundle_keeps_the_mode_of_an_empty_folder(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    target.mkdir()
    target.chmod(0o2750)
    writer.write(bundle(OLD), target, EMPTY)
    assert found(tmp_path) == {f"bundle/{path}": text for path, text in texts(OLD).items()}
    assert target.stat().st_mode & 0o7777 == 0o2750


def test_the_new_bundle_replaces_the_old_one_and_leaves_foreign_files_alone(folder: Path) -> None:
    inodes = {path: (folder / path).stat().st_ino for path in (*FOREIGN, "same.txt")}
    changes = writer.write(bundle(NEW), folder, memory(OLD))
    assert found(folder.parent) == {f"bundle/{path}": text for path, text in (texts(NEW) | FOREIGN).items()}
    assert {path: (folder / path).stat().st_ino for path in inodes} == inodes
    assert kinds(changes) == {
        "README.md": "different",
        "chart/values.yaml": "different",
        "chart/files/policies/come.yaml": "missing",
        "gpushare.lock.yaml": "different",
        "chart/files/policies/gone.yaml": "stale",
    }


def test_a_second_write_changes_nothing(folder: Path) -> None:
    writer.write(bundle(NEW), folder, memory(OLD))
    before = {path: (folder / path).stat() for path in found(folder)}
    assert writer.changes(bundle(NEW), folder) == ()
    assert writer.write(bundle(NEW), folder, memory(NEW)) == ()
    assert {path: (folder / path).stat() for path in found(folder)} == before


def test_changes_lists_what_a_write_would_do_without_writing(folder: Path) -> None:
    before = found(folder.parent)
    changes = writer.changes(bundle(NEW), folder)
    assert found(folder.parent) == before
    assert changes == writer.write(bundle(NEW), folder, memory(OLD))


def test_pruned_empty_folder_is_removed_unless_it_has_foreign_files(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    lay(target, texts(OLD | {"argocd/app.yaml": "x\n", "flux/release.yaml": "x\n"}) | {"flux/own.yaml": "mine\n"})
    writer.write(bundle(OLD), target, memory(OLD | {"argocd/app.yaml": "x\n", "flux/release.yaml": "x\n"}))
    assert not (target / "argocd").exists()
    assert found(target / "flux") == {"own.yaml": "mine\n"}


def test_a_generated_file_that_was_edited_is_written_again(folder: Path) -> None:
    (folder / "README.md").write_text("edited by hand\n")
    writer.write(bundle(OLD), folder, memory(OLD))
    assert found(folder) == texts(OLD) | FOREIGN


def test_edited_stale_file_is_kept_and_reported(folder: Path) -> None:
    (folder / "chart/files/policies/gone.yaml").write_text("edited by hand\n")
    changes = writer.write(bundle(NEW), folder, memory(OLD))
    assert found(folder) == texts(NEW) | FOREIGN | {"chart/files/policies/gone.yaml": "edited by hand\n"}
    assert kinds(changes)["chart/files/policies/gone.yaml"] == ChangeKind.EDITED
    assert writer.changes(bundle(NEW), folder) == ()


def test_conflicting_foreign_file_is_an_error_and_nothing_changes(tmp_path: Path) -> None:
    lay(tmp_path, {"README.md": "my project\n"})
    assert kinds(writer.changes(bundle(NEW), tmp_path))["README.md"] == ChangeKind.FOREIGN
    with pytest.raises(OutputError, match=r"README\.md was not written by gpushare"):
        writer.write(bundle(NEW), tmp_path, EMPTY)
    assert found(tmp_path) == {"README.md": "my project\n"}


def test_foreign_file_with_equal_content_is_accepted(tmp_path: Path) -> None:
    lay(tmp_path / "bundle", {"README.md": NEW["README.md"]})
    writer.write(bundle(NEW), tmp_path / "bundle", EMPTY)
    assert found(tmp_path / "bundle") == texts(NEW)


@pytest.mark.parametrize("obstacle", ["chart", "chart/files/policies"])
def test_file_in_place_of_a_folder_is_an_error(tmp_path: Path, obstacle: str) -> None:
    lay(tmp_path / "bundle", {obstacle: "a file\n"})
    with pytest.raises(OutputError, match=f"bundle/{obstacle} was not written by gpushare"):
        writer.write(bundle(NEW), tmp_path / "bundle", EMPTY)
    assert found(tmp_path) == {f"bundle/{obstacle}": "a file\n"}


def test_folder_in_place_of_a_file_is_an_error(folder: Path) -> None:
    (folder / "README.md").unlink()
    lay(folder, {"README.md/inside.txt": "mine\n"})
    before = found(folder)
    with pytest.raises(OutputError, match=r"README\.md was not written by gpushare"):
        writer.write(bundle(NEW), folder, memory(OLD))
    assert found(folder.parent) == {f"bundle/{path}": text for path, text in before.items()}


def test_a_file_instead_of_the_folder_is_an_error(tmp_path: Path) -> None:
    lay(tmp_path, {"bundle": "a file\n"})
    with pytest.raises(OutputError, match="is a file, not a folder"):
        writer.write(bundle(NEW), tmp_path / "bundle", EMPTY)
    assert found(tmp_path) == {"bundle": "a file\n"}


def test_symlinked_bundle_folder_is_written_at_its_target(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to("bundle")
    writer.write(bundle(NEW), link, memory(OLD))
    assert link.is_symlink()
    assert found(folder) == texts(NEW) | FOREIGN


@pytest.mark.parametrize("linked", ["chart", "chart/files"])
def test_nothing_is_written_through_a_symlinked_subfolder(folder: Path, linked: str) -> None:
    outside = folder.parent / "outside"
    (folder / linked).rename(outside)
    (folder / linked).symlink_to(outside)
    before = found(folder.parent)
    with pytest.raises(OutputError, match=f"{linked} was not written by gpushare"):
        writer.write(bundle(NEW), folder, memory(OLD))
    assert found(folder.parent) == before


def test_nothing_is_removed_through_a_symlinked_subfolder(tmp_path: Path) -> None:
    target, outside = tmp_path / "bundle", tmp_path / "outside"
    old = OLD | {"argocd/app.yaml": "x\n"}
    lay(target, texts(OLD) | {lock.FILE: texts(old)[lock.FILE]})
    lay(outside, {"app.yaml": "x\n"})
    (target / "argocd").symlink_to(outside)
    writer.write(bundle(OLD), target, memory(old))
    assert found(outside) == {"app.yaml": "x\n"}
    assert (target / "argocd").is_symlink()


def test_generated_file_replaced_by_a_symlink_is_rewritten_target_kept(folder: Path) -> None:
    lay(folder.parent, {"target.txt": "somebody's\n"})
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to("../target.txt")
    writer.write(bundle(NEW), folder, memory(OLD))
    assert (folder.parent / "target.txt").read_text() == "somebody's\n"
    assert found(folder) == texts(NEW) | FOREIGN


def test_a_stale_file_that_became_a_link_is_kept(folder: Path) -> None:
    gone = folder / "chart/files/policies/gone.yaml"
    gone.unlink()
    gone.symlink_to("/etc/hostname")
    writer.write(bundle(NEW), folder, memory(OLD))
    assert gone.readlink() == Path("/etc/hostname")


def test_foreign_links_pipes_and_folders_are_kept_unchanged(folder: Path) -> None:
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    (folder / "empty").mkdir()
    (folder / "empty").chmod(0o700)
    (folder / "own").chmod(0o711)
    writer.write(bundle(NEW), folder, memory(OLD))
    assert (folder / "dangling").readlink() == Path("nowhere")
    assert (folder / "pipe").is_fifo()
    assert (folder / "empty").stat().st_mode & 0o777 == 0o700
    assert (folder / "own").stat().st_mode & 0o777 == 0o711


def test_written_files_follow_the_umask_and_others_keep_their_modes(folder: Path) -> None:
    (folder / "README.md").chmod(0o600)
    (folder / "same.txt").chmod(0o600)
    (folder / "chart").chmod(0o711)
    before = os.umask(0o027)
    try:
        writer.write(bundle(NEW | {"argocd/app.yaml": "x\n"}), folder, memory(OLD))
    finally:
        os.umask(before)
    expected = {"README.md": 0o640, "argocd/app.yaml": 0o640, "argocd": 0o750, "same.txt": 0o600, "chart": 0o711}
    assert {path: (folder / path).stat().st_mode & 0o777 for path in expected} == expected


@pytest.mark.parametrize("files", [NEW, OLD], ids=["a bundle that changes", "one that is current"])
def test_only_temporary_files_of_a_killed_run_are_removed(folder: Path, files: dict[str, str]) -> None:
    name = ".gpushare-0123456789abcdef-1"
    lay(folder, {name: "half", f"chart/files/policies/{name}": "half", f"own/{name}": "mine\n", f"{name}.txt": "mine\n"})
    lay(folder.parent, {"outside.txt": "precious\n"})
    (folder / "chart" / name).symlink_to("../../outside.txt")
    writer.write(bundle(files), folder, memory(OLD))
    assert found(folder) == texts(files) | FOREIGN | {f"own/{name}": "mine\n", f"{name}.txt": "mine\n"}
    assert (folder.parent / "outside.txt").read_text() == "precious\n"


def test_concurrent_compile_is_detected(folder: Path) -> None:
    lay(folder, {lock.FILE: texts(OLD | {"more.txt": "x\n"})[lock.FILE]})
    with pytest.raises(OutputError, match="changed by another compile"):
        writer.write(bundle(NEW), folder, memory(OLD))


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a//b"])
def test_artifact_path_outside_the_bundle_raises_and_nothing_is_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="not a path in a bundle"):
        writer.write([Artifact(path=path, text="x")], tmp_path / "bundle", EMPTY)
    assert found(tmp_path) == {}


@pytest.mark.parametrize("path", ["../../outside.txt", "/OUTSIDE"])
def test_hostile_lock_removes_nothing_outside_the_bundle(folder: Path, path: str) -> None:
    outside = folder.parent / "outside.txt"
    outside.write_text("precious\n")
    name = path.replace("/OUTSIDE", str(outside))
    text = texts(OLD)[lock.FILE].replace("README.md:", f'"{name}":')
    lay(folder, {lock.FILE: text})
    assert not any(change.path == name for change in writer.changes(bundle(NEW), folder))
    with pytest.raises(OutputError):
        writer.write(bundle(NEW), folder, EMPTY)
    assert outside.read_text() == "precious\n"


def test_the_lock_of_a_folder_is_read_or_missing_or_a_finding(folder: Path) -> None:
    assert writer.read_lock(folder) == memory(OLD)
    assert writer.read_lock(folder / "own") == EMPTY
    lay(folder, {lock.FILE: texts(OLD)[lock.FILE].replace("kind: Lock", "kind: Look")})
    broken = writer.read_lock(folder)
    assert not isinstance(broken, lock.Lock)
    assert (broken.code, broken.file) == ("GS790", str(folder / lock.FILE))
