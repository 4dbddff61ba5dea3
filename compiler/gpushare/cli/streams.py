"""Bytes in, text out: the only place of the command line that reads inputs and writes to stdout and stderr.

Output for programs is UTF-8 in every locale; text for people has the stream's own encoding.
"""

import errno
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

import click

from gpushare import __version__
from gpushare.cli.exits import BrokenOutputError, CouldNotRunError, ExitCode
from gpushare.core.diagnostics import HintedError
from gpushare.core.wording import visible
from gpushare_node.contract.struct import Struct

if TYPE_CHECKING:
    from gpushare.report.model import Report

STDIN = "<stdin>"
PROGRESS_SECONDS = 1.0
"""How long nothing is shown of what a command is doing, and how often it is shown again."""


def read(name: str, limit_bytes: int, absent: str = "") -> tuple[bytes, str]:
    """Return the bytes of an input and its name in messages; `-` is stdin. Reads at most one byte over the limit.

    `absent` is the hint if there is no such file, or only a folder; without it, how an intent is begun. Raises CouldNotRunError
    if there is nothing to read.
    """
    if not name:
        raise CouldNotRunError("INTENT is empty text", "name a file, or write `-` for standard input")
    try:
        if name == "-":
            if sys.stdin is None:
                raise CouldNotRunError("cannot read standard input: it is closed", "name a file instead of `-`")
            return sys.stdin.buffer.read(limit_bytes + 1), STDIN
        with Path(name).open("rb") as file:
            return file.read(limit_bytes + 1), name
    except OSError as problem:
        raise CouldNotRunError(f"cannot read {name}: {reason(problem)}", _advice(name, problem, absent)) from problem
    except ValueError as problem:
        raise CouldNotRunError(f"cannot read {name!r}: {problem}") from problem


def _advice(name: str, problem: OSError, absent: str) -> str:
    if isinstance(problem, FileNotFoundError):
        folder = Path(name).parent
        starter = absent or f"`gpushare init -o {quote(name)}` writes a starter intent"
        return starter if folder.is_dir() else f"there is no folder {folder}"
    if isinstance(problem, IsADirectoryError) and absent:
        return absent
    if isinstance(problem, IsADirectoryError) and (Path(name) / "gpushare.lock.yaml").exists():
        return f"that is a bundle: name the intent that it was compiled from, or compare: `gpushare plan {quote(name)} INTENT`"
    if isinstance(problem, IsADirectoryError):
        inside = [str(path) for path in sorted(Path(name).glob("*.yaml"))]
        return f"name the intent file: {inside[0]}" if inside else "name the intent file, not its folder"
    return ""


def time_of_output() -> str:
    """Return the time in UTC; that of SOURCE_DATE_EPOCH (seconds since 1970) if it is set, for output that can be repeated.

    Raises CouldNotRunError if that is no such number.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        moment = time.gmtime(int(epoch) if epoch else None)
    except (ValueError, OverflowError, OSError) as problem:
        raise CouldNotRunError(
            "SOURCE_DATE_EPOCH is no time", "a whole number of seconds since 1970, such as 1767225600"
        ) from problem
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", moment)


def reason(problem: OSError) -> str:
    """Return the system's error message, without Python's additions."""
    return (problem.strerror or str(problem)).lower()


def create(path: Path, text: str, *, overwrite: bool) -> None:
    """Write a new file; an existing one only with `overwrite`. Raises CouldNotRunError."""
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError as problem:
        raise CouldNotRunError(f"{path} exists", "--force overwrites it") from problem
    except OSError as problem:
        raise CouldNotRunError(f"cannot write {path}: {reason(problem)}") from problem


def product(text: str) -> None:
    """Write a product for programs to stdout: UTF-8, complete or an exception."""
    _write(sys.stdout, text, "utf-8")


def write(text: str) -> None:
    """Write a product for people to stdout."""
    _write(sys.stdout, text, None)


def page(text: str) -> None:
    """Write a product for people to stdout, through click's pager if it has more lines than their terminal."""
    if _is_longer_than_the_terminal(text):
        click.echo_via_pager(text.removesuffix("\n"))  # which adds a line break
    else:
        write(text)


def _is_longer_than_the_terminal(text: str) -> bool:
    """Whether a person reads it on a terminal, with a keyboard to turn pages, that has fewer lines."""
    if any(stream is None or not stream.isatty() for stream in (sys.stdin, sys.stdout)):
        return False
    return 0 < os.get_terminal_size(sys.stdout.fileno()).lines <= text.count("\n")


def report(found: "Report", style: str, *, is_paged: bool = False) -> None:
    """Write a command's report to stdout: as text for people, or as the product that `style` names. `is_paged`: see `page`."""
    if style == "json":
        from gpushare.core import emit  # noqa: PLC0415 - a call has one format

        product(emit.json_text(found.document()))
    elif style == "html":
        from gpushare.report import html  # noqa: PLC0415 - as above

        product(html.page(found, time_of_output()))
    elif style == "markdown":
        from gpushare.report import markdown  # noqa: PLC0415 - as above

        product(markdown.render(found))
    elif style == "csv":
        from gpushare.report import text  # noqa: PLC0415 - as above

        product(text.csv_text(found))
    else:
        from gpushare.report import terminal, text  # noqa: PLC0415 - as above

        (page if is_paged else write)(text.render(found, terminal.detect_style(sys.stdout)))


def warn(text: str) -> None:
    """Write a message that is not the command's output to stderr. If stderr is closed, it is lost."""
    if sys.stderr is None:
        return
    try:
        _write(sys.stderr, text, None)
    except (CouldNotRunError, BrokenOutputError):
        return


def hint(text: str) -> str:
    """Return the line that follows a message and says what to do. The text is safe to print."""
    return f"   = {text}\n" if text else ""


def progress(text: str) -> None:
    """Show on a terminal how far a long command is, in place of what it showed before; empty text clears the line."""
    if sys.stderr is not None and sys.stderr.isatty():
        warn(f"\r\x1b[K{text}")


class Progress:
    """What a command is doing, for a person who waits: a line on a terminal after a second, removed at the end.

    A context: the line says what is done and for how many seconds, and nothing else may write to stderr meanwhile.
    """

    def __init__(self, what: str) -> None:
        """`what` is safe to print."""
        self.what = what
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if sys.stderr is None or not sys.stderr.isatty():
            return
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def _show(self) -> None:
        waited = 0.0
        while not self._ended.wait(PROGRESS_SECONDS):
            waited += PROGRESS_SECONDS
            progress(f"{self.what}, {waited:.0f} s")
        if waited:
            progress("")


def _write(stream: TextIO | None, text: str, encoding: str | None) -> None:
    if stream is None:
        raise CouldNotRunError("cannot write to standard output: it is closed")
    try:
        stream.flush()
        stream.buffer.write(text.encode(encoding or stream.encoding or "utf-8", "backslashreplace"))
        stream.buffer.flush()
    except OSError as problem:
        raise refused(problem) from problem


def refused(problem: OSError) -> CouldNotRunError | BrokenOutputError:
    """Return the exception for an error of writing to stdout; keep the interpreter's last flush from failing again."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if problem.errno == errno.EPIPE:
        return BrokenOutputError()
    return CouldNotRunError(f"cannot write to standard output: {reason(problem)}")


class Failure(Struct):
    """The exit code, the line that says why, the text before it (of a bug its traceback), and the hint. All safe to print."""

    code: ExitCode
    line: str
    before: str
    hint: str

    @property
    def text(self) -> str:
        """The whole message."""
        return f"{self.before}{self.line}\n{hint(self.hint)}"


def failure(problem: Exception) -> Failure:
    """Return what an exception means: the environment's fault or the call's, or any other, which is a bug."""
    message = str(problem)
    if isinstance(problem, OSError):
        file = "" if problem.filename is None else f"{os.fsdecode(problem.filename)}: "
        message = file + reason(problem)
    if isinstance(problem, (HintedError, OSError)):
        advice = problem.hint if isinstance(problem, HintedError) else ""
        return Failure(code=ExitCode.COULD_NOT_RUN, line=f"gpushare: {visible(message)}", before="", hint=visible(advice))
    from traceback import format_exception  # noqa: PLC0415 - few calls fail by a bug, and it loads the reader of source text

    return Failure(
        code=ExitCode.BUG,
        line=f"gpushare: this is a bug in gpushare {__version__}, not in your input ({type(problem).__name__})",
        before="".join(format_exception(problem)),
        hint="please report it with the text above and the intent that shows it",
    )
