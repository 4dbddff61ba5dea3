"""The image's build stage: puts everything that the final stage copies into one folder. `install.py RUNTIME OUT`.

RUNTIME is the final base, mounted; OUT is what is added to it. The variable TARGETARCH is the architecture, in Docker's terms.
Nothing of the target is run, so an image for another architecture is built without emulation. It needs no shell.
"""

import json
import os
import py_compile
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import sbom

HERE = Path(__file__).parent
PACKAGES = Path("opt/gpushare")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

# Of the Kubernetes client only the HTTP client is used. Its API classes, twice with `aio`, are 73 of 74 MB of source.
_UNUSED = (
    "kubernetes/aio",
    "kubernetes/client/api/*",
    "kubernetes/client/models/*",
    "kubernetes/**/*_test.py",
    "kubernetes/**/test_*.py",
    "bin",
    "*.dist-info/RECORD",
    "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED",
    "*.dist-info/WHEEL",
    "*.dist-info/direct_url.json",
    "*.dist-info/top_level.txt",
    "**/__pycache__",
    "**/*.pyi",
)
_NEVER_IMPORTED = {"config-3.11", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo", "unittest"}

LAUNCHER = """\
#!{python} -ISB
# Alone with its own packages: no environment variable, no user's folder, no `site` has a say in what a root process loads.

import sys

sys.path.insert(0, "/{packages}")

from gpushare_node.cli import main

sys.exit(main())
"""


def install(runtime: Path, out: Path, architecture: str) -> None:
    """Fill `out`. Raises CalledProcessError if a package cannot be installed, SystemExit if the bases do not match."""
    library = _find_library(runtime)
    target = out / PACKAGES
    _install_packages(target, MACHINES[architecture])
    _prune(target)
    _copy_sources(HERE.parent / "gpushare_node", target / "gpushare_node")
    (target / sbom.NAME).write_text(json.dumps(sbom.describe(runtime, target, architecture), indent=1) + "\n")
    for source in sorted(target.rglob("*.py")):
        _compile(source, source, Path("/") / source.relative_to(out))
    _compile_library(library, runtime, out)
    _write_launcher(out / "usr/local/bin/gpushare-node", library.relative_to(runtime))
    _set_modes(out)


def _find_library(runtime: Path) -> Path:
    """Return the runtime's standard library. It must have our own version: bytecode and binary wheels fit exactly one."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for place in ("usr/lib", "usr/local/lib"):
        library = runtime / place / version
        if (library / "os.py").exists():
            return library
    raise SystemExit(f"the runtime base has no {version}, which is what the build base has: take bases of one Python version")


def _install_packages(target: Path, machine: str) -> None:
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-cache-dir",
            "--root-user-action=ignore",
            "--disable-pip-version-check",
            "--no-compile",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            *platforms,
            f"--target={target}",
            f"--requirement={HERE / 'requirements.txt'}",
        ],
        check=True,
    )


def _prune(target: Path) -> None:
    for pattern in _UNUSED:
        for path in list(target.glob(pattern)):
            if path.name == "__init__.py" or not path.exists():
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _copy_sources(package: Path, target: Path) -> None:
    """Copy its modules: folders that hold none are what older commits left in a clone, and would change the digest."""
    for source in sorted(package.rglob("*.py")):
        copy = target / source.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def _compile(source: Path, beside: Path, shown: Path) -> None:
    """Write bytecode without dates, which would make builds differ; unchecked, because no source changes in an image."""
    beside = beside.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), cfile=str(beside), dfile=str(shown), doraise=True, invalidation_mode=unchecked)


def _compile_library(library: Path, runtime: Path, out: Path) -> None:
    """Compile the standard library: small bases leave its bytecode out, and then every start takes four times as long."""
    for source in sorted(library.rglob("*.py")):
        inside = source.relative_to(runtime)
        folders = set(source.relative_to(library).parts[:-1])
        is_there = (source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc").exists()
        if not folders & _NEVER_IMPORTED and not re.search("-packages$", " ".join(folders)) and not is_there:
            _compile(source, out / inside, Path("/") / inside)


def _write_launcher(path: Path, library: Path) -> None:
    python = Path("/") / library.parents[1] / "bin/python3"
    path.parent.mkdir(parents=True)
    path.write_text(LAUNCHER.format(python=python, packages=PACKAGES))
    path.chmod(0o755)


def _set_modes(out: Path) -> None:
    """Give files the modes of an image: those of a clone come from its owner's umask, and would change the digest."""
    for path in (out, *out.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sys.argv[2]), os.environ["TARGETARCH"])
