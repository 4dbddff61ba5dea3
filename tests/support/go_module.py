"""Programs built from the Go module proxy, each set once into the tests' cache. Needs Go 1.26."""

import functools
import hashlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support import cache

_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
_QUICKER = {"GOGC": "400"}
"""The compiler collects its garbage less often: it takes more memory, and a seventh less time."""


@dataclass(frozen=True, kw_only=True)
class GoModule:
    """A folder with go.mod, go.sum and tools.go, which require the programs: a module's `replace` lines count only in its own
    build, so `go install` of such a program fails, and these files repeat them. A program of our own is beside them."""

    name: str
    here: Path
    fill: "Callable[[GoModule, Path], object]"
    """Builds into the folder what is wanted."""
    tags: str = ""
    linker: str = ""
    """More words for the linker."""

    @functools.cached_property
    def folder(self) -> Path:
        """The folder in the cache, filled if it is missing. CalledProcessError if that fails."""
        go = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
        files = [path.read_bytes() for path in (self.here / "go.mod", self.here / "go.sum", *sorted(self.here.glob("*.go")))]
        command = repr((self._command, _ENVIRONMENT)).encode()
        digest = hashlib.sha256(b"\0".join([*files, go.encode(), command])).hexdigest()[:12]
        return cache.folder(f"{self.name}-{digest}", lambda folder: self.fill(self, folder))

    @property
    def _command(self) -> tuple[str, ...]:
        # Without what only debuggers read: it takes a seventh of the time.
        return ("go", "build", "-trimpath", "-tags", self.tags, "-gcflags=all=-dwarf=false", "-ldflags", f"-s -w {self.linker}")

    def build(self, target: Path, *packages: str) -> None:
        """Build programs: into a folder under their own names, or one into a file."""
        self.run(*self._command, "-o", f"{target}/" if target.is_dir() else str(target), *packages)

    def sources(self, module: str) -> Path:
        """Where the sources of a required module lie."""
        return Path(self.run("go", "list", "-m", "-f", "{{.Dir}}", module).strip())

    def run(self, *command: str) -> str:
        """Run a command in the module; what it prints."""
        environment = {**os.environ, **_ENVIRONMENT, **_QUICKER}
        return subprocess.run(command, cwd=self.here, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
