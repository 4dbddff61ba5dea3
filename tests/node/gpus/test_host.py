"""The host's own programs: found in its file system, run inside it, never waited for without end."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpushare_node.adapters.host import programs
from gpushare_node.adapters.host.programs import Program, find
from tests.support import c_compiler
from tests.support.process_fixtures import needs_root

SOURCE = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments)
{
    FILE *log = fopen("/log", "a");
    for (int at = 0; at < count; at++) fprintf(log, "%s ", arguments[at]);
    fclose(log);
    if (access("/hang", F_OK) == 0) sleep(600);
    if (access("/fail", F_OK) != 0) return 0;
    puts("Unable to reset:\\n  in use");
    return 3;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static program that runs in any root."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(SOURCE)
    built = folder / "program"
    subprocess.run([*c_compiler.command(), "-static", "-o", str(built), str(folder / "program.c")], check=True)
    return built


@pytest.fixture
def root(tmp_path: Path, program: Path) -> Path:
    """A host whose nvidia-smi is that program."""
    if os.geteuid():
        pytest.skip("only root enters another root")
    path = tmp_path / "host" / "usr" / "bin" / "nvidia-smi"
    path.parent.mkdir(parents=True)
    shutil.copy(program, path)
    return tmp_path / "host"


def test_programs_run_in_the_hosts_root(root: Path) -> None:
    machine = programs.this_machine((root / "nowhere", root))
    assert machine.reset("00000000:07:00.0") is None
    assert machine.make_nodes() is None
    assert (root / "log").read_text() == ("/usr/bin/nvidia-smi --gpu-reset -i 00000000:07:00.0 /usr/bin/nvidia-smi ")


@pytest.mark.failure_case(30)
def test_missing_host_program_is_reported(tmp_path: Path) -> None:
    machine = programs.this_machine((tmp_path,))
    assert machine.reset("00000000:07:00.0") == machine.make_nodes() == "there is no nvidia-smi on the host"


def test_host_program_installed_later_is_found(root: Path) -> None:
    smi = root / "usr" / "bin" / "nvidia-smi"
    smi.rename(root / "kept")
    machine = programs.this_machine((root,))
    assert machine.make_nodes() is not None
    (root / "kept").rename(smi)
    assert machine.make_nodes() is None


def test_a_program_that_fails_is_quoted(root: Path) -> None:
    (root / "fail").touch()
    assert programs.this_machine((root,)).reset("0") == "nvidia-smi exited with 3: Unable to reset: in use"


def test_hanging_host_program_is_killed(root: Path) -> None:
    (root / "hang").touch()
    program = find("nvidia-smi", (root,))
    assert program is not None
    assert program.run((), 0.5) == "nvidia-smi did not finish within 0.5 seconds"


@needs_root
def test_unexecutable_host_program_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text("no program")
    problem = programs.this_machine((tmp_path,)).make_nodes()
    assert problem is not None
    assert "Permission denied" in problem


def test_missing_host_root_is_reported(tmp_path: Path) -> None:
    problem = Program(root=tmp_path / "gone", path="/bin/true").run((), 10)
    assert problem is not None
    assert "No such file" in problem


def test_the_boot_has_an_id() -> None:
    assert programs.boot_id() == programs.boot_id()
    assert len(programs.boot_id()) == 36
