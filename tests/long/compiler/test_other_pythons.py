"""Every example, compiled by every Python that this machine has: the same bytes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compiler.golden.test_examples import files, texts
from tests.compiler.golden.update import EXAMPLES, compiled, examples
from tests.support.clone import copy_to


def other_pythons() -> list[str]:
    """Interpreters of another minor version than this one that start, from PATH and from pyenv's versions."""
    folders = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders += sorted(version / "bin" for version in pyenv.glob("3.*"))
    found = {}
    for minor in (11, 12, 13, 14):
        for folder in folders:
            program = folder / f"python3.{minor}"
            if minor != sys.version_info.minor and minor not in found and program.is_file():
                started = subprocess.run([program, "-c", ""], capture_output=True, check=False)
                if started.returncode == 0:
                    found[minor] = str(program)
    return list(found.values())


def test_output_is_identical_across_pythons_locales_and_folders(tmp_path: Path) -> None:
    pythons = other_pythons() or [sys.executable]
    source = copy_to(tmp_path / "gpushare")
    print(f"compiling every example with {', '.join(pythons)}")
    for number, python in enumerate(pythons):
        place = tmp_path / f"elsewhere {number}"
        shutil.copytree(EXAMPLES, place, ignore=shutil.ignore_patterns("bundle"))
        venv = tmp_path / f"venv{number}"
        subprocess.run([python, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "-q", source], check=True)
        elsewhere = {"LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "HOME": str(tmp_path)}
        environment = {"PATH": os.environ["PATH"], **elsewhere}
        for example in examples():
            intent = place / example.name / "intent.yaml"
            command: list[str | Path] = [venv / "bin" / "gpushare", "compile", intent]
            done = subprocess.run(command, capture_output=True, env=environment, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert files(intent.parent / "bundle") == texts(compiled(example)), example.name
