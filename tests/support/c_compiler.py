"""The C compiler of the tests: what CC names, else cc, gcc or clang, proved by a program with a header of the C library."""

import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

_PROGRAM = '#include <stdio.h>\nint main(void) { return printf("") != 0; }\n'


class NoCompilerError(RuntimeError):
    """No compiler here makes a program; the text says why."""


@functools.cache
def command() -> tuple[str, ...]:
    """The words that begin a call of the compiler. Raises NoCompilerError."""
    chosen = os.environ.get("CC")
    candidates = [tuple(shlex.split(chosen))] if chosen else [(name,) for name in ("cc", "gcc", "clang") if shutil.which(name)]
    said = [_failure(words) for words in candidates]
    for words, failure in zip(candidates, said, strict=True):
        if not failure:
            return words
    raise NoCompilerError("; ".join(said) or "no cc, gcc or clang on PATH")


def _failure(words: tuple[str, ...]) -> str:
    """What is wrong with a compiler; empty if it makes a program."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "program.c"
        source.write_text(_PROGRAM)
        try:
            done = subprocess.run([*words, "-o", source.with_suffix(""), source], capture_output=True, text=True, check=False)
        except OSError as error:
            return f"{words[0]}: {error.strerror}"
    said = done.stderr.strip().splitlines()
    return f"{words[0]} makes no program: {said[0] if said else 'no reason given'}" if done.returncode else ""
