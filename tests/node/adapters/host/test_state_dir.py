"""The folder on the host: whole files or none, one runtime at a time, and nothing that is read can stop a run."""

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_dir import (
    CapRecord,
    FormerGpu,
    InstanceSpec,
    Journal,
    KeptContainer,
    Notice,
    Published,
    RepairMark,
    StateDir,
    StateDirError,
    StateDirLockedError,
)
from gpushare_node.adapters.host.state_files import FirstCaps

JOURNAL = Journal(
    policy_digest="d1",
    boot_id="b1",
    attempts=2,
    driver="580.95.05",
    failed_at_seconds=812,
    is_changing=True,
    is_new_layout=True,
    paused={"nvidia.com/gpu.deploy.dcgm": "true"},
    former=(FormerGpu(uuid="GPU-0", mig=True, instances=(InstanceSpec(profile_id=19, start=0, size=1),)),),
    pending_modes={"GPU-1": False},
)


REPAIR = RepairMark(finding="drift", boot_id="b1", at_seconds=7)


@pytest.fixture
def folder(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "gpushare")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A real file system of four pages."""
    if os.geteuid():
        pytest.skip("only root mounts a file system")
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def readers(folder: StateDir) -> tuple[Callable[[], object], ...]:
    return folder.journal, folder.policy, folder.profile, folder.repaired


def names(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


def test_missing_state_dir_is_empty_and_has_no_problems(folder: StateDir) -> None:
    assert (*(read() for read in readers(folder)), folder.caps()) == (None,) * 4 + ({},)
    assert folder.problems() == ()
    assert not folder.path.exists()
    folder.clear_journal()
    folder.remove()


def test_written_state_is_read_back_at_the_next_start(folder: StateDir) -> None:
    folder.write_journal(JOURNAL)
    folder.keep_policy("kind: NodePolicy\n")
    folder.keep_profile("mig-01234567-a", {"MIG-1", "MIG-2"})
    exempt = CapRecord(device="GPU-1", cap_bytes=None, notice=Notice(since=5, seconds=60, until=65, is_over=True))
    caps = {
        "c1": KeptContainer(
            pod_uid="u1", name="main", caps=(CapRecord(device="GPU-0", cap_bytes=1 << 30, tolerance_bytes=5), exempt)
        )
    }
    folder.keep_caps(caps)
    again = StateDir(folder.path)
    assert again.journal() == JOURNAL
    assert again.policy() == "kind: NodePolicy\n"
    assert again.profile() == Published(key="mig-01234567-a", devices=frozenset({"MIG-1", "MIG-2"}))
    assert again.caps() == caps
    again.clear_journal()
    assert folder.journal() is None
    assert folder.problems() == ()


def test_state_dir_is_accessible_only_to_root(folder: StateDir) -> None:
    folder.path.mkdir(mode=0o755)
    folder.write_journal(JOURNAL)
    with folder.lock():
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert {stat.S_IMODE(one.stat().st_mode) for one in folder.path.iterdir()} == {0o600}


@pytest.mark.failure_case(24)
def test_second_runtime_is_refused_while_the_first_holds_the_lock(folder: StateDir) -> None:
    program = (
        "import sys, pathlib; from gpushare_node.adapters.host.state_dir import StateDir\n"
        "with StateDir(pathlib.Path(sys.argv[1])).lock():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StateDirLockedError, match="another gpushare-node is running"), folder.lock():
            pytest.fail("two runtimes hold the lock")
        other.kill()
        other.wait()
    with folder.lock():
        pass


@pytest.mark.failure_case(25)
@pytest.mark.parametrize("name", ["journal.json", "policy.json", "caps.json", "profile.json", "repair.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"not json",
        b"[]",
        b"null",
        b'{"version": 1}',
        b'{"version": 2, "content": {}}',
        b'{"version": 1, "content": 7}',
        b'{"version": true, "content": {}}',
        b'{"version": 1, "content": {"policy_digest": 7}}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"version": 1, "content": [{}]}',
        b" " * (5 << 20),
    ],
    ids=range(14),
)
def test_file_with_invalid_content_is_treated_as_absent(folder: StateDir, name: str, content: bytes) -> None:
    folder.path.mkdir()
    (folder.path / name).write_bytes(content)
    assert (*(read() for read in readers(folder)), folder.caps()) == (None,) * 4 + ({},)
    (problem,) = folder.problems()
    assert problem.startswith(f"{folder.path / name} cannot be used and is ignored: ")
    assert len(problem) < 400
    folder.write_journal(JOURNAL)
    folder.keep_policy("text")
    folder.keep_caps({})
    folder.keep_profile("key", ())
    folder.mark_repair(REPAIR)
    assert (folder.journal(), folder.policy()) == (JOURNAL, "text")
    assert (folder.caps(), folder.repaired()) == ({}, REPAIR)
    assert folder.profile() is not None
    assert folder.problems() == ()


@pytest.mark.failure_case(25)
def test_a_truncated_journal_at_every_length_is_absent_or_whole(folder: StateDir) -> None:
    folder.write_journal(JOURNAL)
    path = folder.path / "journal.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert folder.journal() is None
        assert len(folder.problems()) == 1


@pytest.mark.failure_case(25)
@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_link_folder_or_pipe_in_place_of_a_state_file_is_not_read(folder: StateDir, tmp_path: Path, kind: str) -> None:
    folder.path.mkdir()
    path = folder.path / "journal.json"
    other = tmp_path / "other"
    other.write_text("precious")
    match kind:
        case "link":
            path.symlink_to(other)
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    assert folder.journal() is None
    assert len(folder.problems()) == 1
    if kind == "folder":
        with pytest.raises(StateDirError):
            folder.write_journal(JOURNAL)
    else:
        folder.write_journal(JOURNAL)
        assert folder.journal() == JOURNAL
    assert other.read_text() == "precious"


@pytest.mark.failure_case(25)
def test_symlink_at_the_temporary_path_is_not_written_through(folder: StateDir, tmp_path: Path) -> None:
    folder.path.mkdir()
    (folder.path / "journal.json.new").symlink_to(tmp_path / "other")
    folder.write_journal(JOURNAL)
    assert folder.journal() == JOURNAL
    assert not (tmp_path / "other").exists()


@pytest.mark.failure_case(25)
def test_symlink_in_place_of_the_state_dir_is_refused(folder: StateDir, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirError):
        folder.write_journal(JOURNAL)
    assert names(tmp_path / "elsewhere") == set()


@pytest.mark.failure_case(25)
def test_full_disk_keeps_the_previous_journal_and_it_can_be_cleared(tiny: Path) -> None:
    folder = StateDir(tiny)
    folder.write_journal(JOURNAL)
    filler = tiny / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * (64 << 10))
    with pytest.raises(StateDirError, match=r"journal\.json cannot be written: No space left on device"):
        folder.write_journal(Journal(policy_digest="d2", boot_id="b2"))
    assert folder.journal() == JOURNAL
    assert names(tiny) == {"filler", "journal.json"}
    folder.clear_journal()
    assert folder.journal() is None
    filler.unlink()
    folder.write_journal(JOURNAL)


@pytest.mark.failure_case(25)
def test_a_read_only_folder_is_read_and_refused(tiny: Path) -> None:
    folder = StateDir(tiny)
    folder.write_journal(JOURNAL)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    assert folder.journal() == JOURNAL
    with pytest.raises(StateDirError, match="Read-only file system"), folder.lock():
        pytest.fail("it cannot be locked")
    for write in (lambda: folder.write_journal(JOURNAL), folder.clear_journal, lambda: folder.keep_policy("text")):
        with pytest.raises(StateDirError, match="Read-only file system"):
            write()


@pytest.mark.failure_case(25)
def test_failure_to_write_is_logged_on_change_and_told_until_the_write_succeeds(
    folder: StateDir, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder.write_journal(JOURNAL)
    assert folder.unwritable() == ""
    (folder.path / "journal.json").unlink()
    (folder.path / "journal.json").mkdir()
    for _ in range(5):
        with pytest.raises(StateDirError):
            folder.write_journal(JOURNAL)
        folder.keep_policy("another file")
    assert len(caplog.records) == 1
    assert folder.unwritable() == caplog.records[0].getMessage()
    (folder.path / "journal.json").rmdir()
    folder.write_journal(JOURNAL)
    assert (folder.unwritable(), len(caplog.records)) == ("", 2)


@pytest.mark.failure_case(25)
def test_read_only_folder_is_told_before_anything_is_written(tiny: Path) -> None:
    folder = StateDir(tiny)
    assert folder.unwritable() == ""
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    assert "Read-only file system" in folder.unwritable()
    subprocess.run(["mount", "-o", "remount,rw", str(tiny)], check=True)
    assert folder.unwritable() == ""


def test_folder_that_no_write_has_made_yet_is_no_trouble(tmp_path: Path) -> None:
    assert StateDir(tmp_path / "none").unwritable() == ""


def test_partial_files_left_by_a_crash_are_removed_by_the_next_lock(folder: StateDir) -> None:
    folder.path.mkdir()
    (folder.path / "journal.json.new").write_text("{")
    with folder.lock():
        assert names(folder.path) == {"lock"}


def test_remove_deletes_the_whole_state_dir(folder: StateDir) -> None:
    with folder.lock():
        folder.write_journal(JOURNAL)
        folder.keep_policy("text")
        folder.keep_caps({})
        folder.keep_profile("key", ())
        folder.mark_repair(REPAIR)
        (folder.path / "caps.json.new").write_text("{")
        folder.remove()
        folder.remove()
    assert not folder.path.exists()


def test_remove_keeps_foreign_files_and_a_mount_point(folder: StateDir, tiny: Path) -> None:
    folder.write_journal(JOURNAL)
    (folder.path / "notes.txt").write_text("an administrator's")
    folder.remove()
    assert names(folder.path) == {"notes.txt"}
    mounted = StateDir(tiny)
    mounted.write_journal(JOURNAL)
    mounted.remove()
    assert names(tiny) == set()


def test_state_files_contain_a_format_version(folder: StateDir) -> None:
    folder.write_journal(JOURNAL)
    assert json.loads((folder.path / "journal.json").read_text())["version"] == 1


def test_caps_stored_by_the_previous_release_are_read(folder: StateDir) -> None:
    one = {"device": "GPU-0", "cap_bytes": 5, "tolerance_bytes": 0}
    folder.keep_caps({})
    (folder.path / "caps.json").write_text(json.dumps({"version": 1, "content": {"c1": [one]}}))
    assert folder.caps() == {"c1": KeptContainer(pod_uid="", name="", caps=(CapRecord(device="GPU-0", cap_bytes=5),))}


@pytest.mark.parametrize("kept", [None, 5])
def test_nothing_is_older_where_caps_are_stored_and_their_beginning_is_lost(folder: StateDir, kept: int | None) -> None:
    folder.keep_caps({"c1": KeptContainer(pod_uid="", name="", caps=(CapRecord(device="GPU-0", cap_bytes=kept),))})
    assert folder.first_caps() == (None if kept is None else FirstCaps(since=0))
    first = FirstCaps(since=700, older=frozenset({"c2", "uid-3"}))
    folder.keep_first_caps(first)
    assert folder.first_caps() == first
