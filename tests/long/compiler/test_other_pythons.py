"""Every example, compiled by every Python that this machine has: the same bytes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compiler.golden.test_examples import files, texts
from tests.compiler.golden.update import EXAMPLES, compiled, examples
from tests.support.clone import copy_to

_COMPILE = """
import sys
from gpushare.cli import call
for intent in sys.argv[1:]:
    sys.argv[:] = ["gpushare", "compile", intent]
    if call():
        sys.exit(intent)
"""
"""All of them in one process: to start the program takes as long as to compile an example."""


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
    build = ("wheel", "-q", "--no-deps", "--wheel-dir", tmp_path, copy_to(tmp_path / "gpushare"))
    subprocess.run([sys.executable, "-m", "pip", *map(str, build)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    print(f"compiling every example with {', '.join(pythons)}")
    for number, python in enumerate(pythons):
        place = tmp_path / f"elsewhere {number}"
        shutil.copytree(EXAMPLES, place, ignore=shutil.ignore_patterns("bundle"))
        venv = tmp_path / f"venv{number}"
        subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
        install = ("--python", venv / "bin" / "python", "install", "-q", "--no-compile", wheel)
        subprocess.run([sys.executable, "-m", "pip", *map(str, install)], check=True)
        elsewhere = {"LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "HOME": str(tmp_path)}
        environment = {"PATH": os.environ["PATH"], **elsewhere}
        intents = [place / example.name / "intent.yaml" for example in examples()]
        done = subprocess.run(
            [venv / "bin" / "python", "-c", _COMPILE, *intents], capture_output=True, env=environment, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        for example in examples():
            assert files(place / example.name / "bundle") == texts(compiled(example)), example.name
