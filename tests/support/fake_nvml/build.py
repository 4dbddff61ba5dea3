"""Compiles the C parts with gcc: the library, with or without some of its symbols, and the static tenant.

Each result lies in the tests' cache under the digest of all that it is made from.
"""

import functools
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path

from tests.support import c_compiler, cache
from tests.support.fake_nvml import layout

SOURCES = Path(__file__).parent
LIBRARY = ("node.c", "devices.c", "mig.c", "compute.c", "processes.c", "topology.c", "events.c")
SONAME = "libnvidia-ml.so.1"

MEMORY_LIMITS = frozenset({"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"})
"""What only drivers from R615 on have."""

_FLAGS = ("-std=gnu17", "-O1", "-Wall", "-Wextra")


@functools.cache
def symbols() -> frozenset[str]:
    """The NVML functions that the sources define."""
    text = "".join(SOURCES.joinpath(name).read_text() for name in LIBRARY)
    return frozenset(re.findall(r"^(?:nvmlReturn_t |const char \*)(nvml\w+)\(", text, re.MULTILINE))


@functools.cache
def library(missing: frozenset[str] = MEMORY_LIMITS) -> Path:
    """The shared library without these symbols. Raises CalledProcessError when gcc refuses."""
    script = "{ global: " + "".join(f"{name}; " for name in sorted(symbols() - missing)) + "fake_nvml_forget; local: *; };\n"
    arguments = ("-shared", "-fPIC", f"-Wl,-soname,{SONAME}", "-Wl,--version-script=symbols.map", *LIBRARY, "-pthread")
    return _built(SONAME, arguments, {"symbols.map": script})


@functools.cache
def tenant() -> Path:
    """The tenant's program. It is static: containers of it hold nothing else."""
    return _built("tenant", ("-static", "tenant.c"), {})


def _built(name: str, arguments: Collection[str], extra: dict[str, str]) -> Path:
    generated = {"layout.h": layout.header(), **extra}
    digest = hashlib.sha256(repr((_FLAGS, arguments, sorted(generated.items()))).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + source.read_bytes())
    folder = cache.folder(f"fake-nvml-{digest.hexdigest()[:16]}", lambda made: _compile(made / name, arguments, generated))
    return folder / name


def _compile(target: Path, arguments: Collection[str], generated: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in generated.items():
            Path(scratch, name).write_text(text)
        paths = [str(SOURCES / one) if one.endswith(".c") else one for one in arguments]
        command = [*c_compiler.command(), *_FLAGS, f"-I{scratch}", f"-I{SOURCES}", *paths, "-o", str(target)]
        subprocess.run(command, cwd=scratch, check=True)
