"""docs/images/session.svg and modes.svg: sessions in a terminal, drawn from what the commands really print there.

`make docs` writes them again; a test compares. Runs where Python has pseudo-terminals.
"""

import contextlib
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).parent / "images"


@dataclass(frozen=True, kw_only=True)
class Session:
    """Commands that are run one after the other in a folder with the intent, and the picture of them."""

    name: str
    title: str
    intent: str
    commands: tuple[str, ...]
    left: int = 0
    """Columns of the intent, which is drawn to the left of the commands; 0: it is not drawn."""

    @property
    def picture(self) -> Path:
        """The file of the picture."""
        return IMAGES / f"{self.name}.svg"


_HEAD = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: physics}
spec:
  platform: {image: {repository: registry.example.org/gpushare/node-runtime}}
"""
_POOL = """\
    {name}:
      card: a100-sxm4-40gb
      nodes: {{matchLabels: {{example.org/pool: {name}}}, expected: {nodes}}}
      gpusPerNode: {gpus}
      sharing: {{{sharing}}}
"""
_MODES = {
    "exclusive": "mode: exclusive",
    "time-slicing": "mode: time-slicing, replicas: 4",
    "mps": "mode: mps, replicas: 4",
    "mig": "mode: mig, layout: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}",
    "mig-time-slicing": "mode: mig, layout: {3g.20gb: 2}, replicas: {3g.20gb: 2}",
}
_ACCEPTED = """\
  accept:
    GS210: Each pod selects its pool.
    GS713: The operator is installed with client-side apply.
"""
_TWO_POOLS = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: physics}
spec:
  platform:
    image:
      repository: registry.example.org/runtime
  pools:
    notebooks:
      card: t4
      nodes:
        matchLabels: {example.org/gpu: t4}
        expected: 12
      gpusPerNode: 1
      sharing: {mode: time-slicing, replicas: 4}
      memory: {cap: even}
    training:
      card: a100-sxm4-40gb
      nodes:
        matchLabels: {example.org/gpu: a100}
        expected: 4
      gpusPerNode: 8
      sharing:
        mode: mig
        layout: {3g.20gb: 1, 1g.5gb: 4}
  quotas:
    course: {notebooks: 20}
"""
SESSIONS = (
    Session(
        name="session",
        title="An intent with two pools, and their GPUs as gpushare show draws them: four shares of a T4, five of an A100",
        intent=_TWO_POOLS,
        commands=("gpushare show intent.yaml",),
        left=51,
    ),
    Session(
        name="modes",
        title="An A100 in each mode: one user, four in turns, four at once, four partitions, four users of two partitions",
        intent=_HEAD
        + _ACCEPTED
        + "  pools:\n"
        + "".join(_POOL.format(name=name, nodes=1, gpus=1, sharing=sharing) for name, sharing in _MODES.items()),
        commands=("gpushare show intent.yaml",),
    ),
)

COLUMNS, NARROW = 100, 76
"""Of a terminal, alone and beside an intent."""
_WIDTH, _HEIGHT, _MARGIN = 8.4, 18, 16
"""Of a character, of a line, and around the text, in pixels."""
_COLOURS = {
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "34": "#79c0ff",
    "35": "#d2a8ff",
    "36": "#76e3ea",
    "2": "#8b949e",
}
"""Of the codes that select graphic rendition; each has a contrast of more than 4.5 to the background."""
_PLAIN, _GROUND = "#e6edf3", "#0d1117"
_TEXT, _BEHIND = "38;2;", "48;2;"
_CODE = re.compile(r"[34]8;2;\d+;\d+;\d+|\d+")
"""One code: a colour of the text (3) or of its background (4) among 16 million, or another."""
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")


def main() -> int:
    """Write the pictures."""
    for one in SESSIONS:
        one.picture.write_text(picture(one), encoding="utf-8")
    return 0


def picture(session: Session) -> str:
    """Return the SVG."""
    shown = ((f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m", *printed, "") for command, printed in run(session))
    rows = [row for rows in shown for row in rows][:-1]
    if session.left:
        intent = ("\x1b[2m# intent.yaml\x1b[0m", *session.intent.splitlines())
        rows = [_beside(*pair, session.left) for pair in zip_longest(intent, rows, fillvalue="")]
    width, height = (session.left + _columns(session)) * _WIDTH + 2 * _MARGIN, len(rows) * _HEIGHT + 2 * _MARGIN
    box = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    font = 'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" {font}>',
        f"<title>{session.title}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{_GROUND}"/>',
    ]
    for number, row in enumerate(rows):
        top = _MARGIN + number * _HEIGHT + 14
        runs = list(_runs(row))
        lines += [_behind(text, column, top, colour) for text, column, codes in runs if (colour := _shade(codes, _BEHIND))]
        lines += [_text(text, column, top, codes) for text, column, codes in runs if text.strip()]
    return "\n".join([*lines, "</svg>", ""])


def _columns(session: Session) -> int:
    """Return the columns of the terminal."""
    return NARROW if session.left else COLUMNS


def _beside(left: str, right: str, columns: int) -> str:
    """Return one row of two; the right one begins at the column."""
    return f"{left}{' ' * (columns - len(_STYLE.sub('', left)))}\x1b[0m{right}"


def run(session: Session) -> Iterator[tuple[str, list[str]]]:
    """Run the commands one after the other in an empty folder; yield each with the lines that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "intent.yaml").write_text(session.intent, encoding="utf-8")
        for command in session.commands:
            yield command, _printed(["sh", "-c", command], folder, _columns(session))


def _printed(command: Sequence[str], folder: str, columns: int) -> list[str]:
    """Return what a program prints on a terminal of so many columns, line by line."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "CI", "GITHUB_ACTIONS"}}
    size = {"COLUMNS": str(columns), "LINES": "60", "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    ours, theirs = pty.openpty()
    environment = {**inherited, **size, "PATH": programs}
    with subprocess.Popen(  # noqa: S603 - the commands above
        command,
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
            while part := os.read(ours, 65536):
                printed += part
    os.close(ours)
    text = _OTHER.sub("", printed.decode())
    return [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip().split("\n")] if text.strip() else []


def _runs(row: str) -> Iterator[tuple[str, int, frozenset[str]]]:
    """Yield the parts of a line that look alike: text, column, and the codes in force."""
    codes, column, at = frozenset[str](), 0, 0
    for found in (*_STYLE.finditer(row), None):
        text = row[at : found.start() if found else len(row)]
        if text:
            yield text, column, codes
        column += len(text)
        if found:
            at = found.end()
            new = set(_CODE.findall(found[1]))
            codes = frozenset() if not new or "0" in new else codes | new


def _shade(codes: frozenset[str], kind: str) -> str:
    """Return the colour of the text or behind it; empty if none of 16 million was chosen."""
    (channels,) = [code.removeprefix(kind).split(";") for code in codes if code.startswith(kind)] or [()]
    return f"rgb({','.join(channels)})" if channels else ""


def _behind(text: str, column: int, top: int, colour: str) -> str:
    place = _MARGIN + column * _WIDTH
    return f'<rect x="{place:.1f}" y="{top - 14}" width="{len(text) * _WIDTH:.1f}" height="{_HEIGHT}" fill="{colour}"/>'


def _text(text: str, column: int, top: int, codes: frozenset[str]) -> str:
    begin = len(text) - len(text.lstrip())
    colour = _shade(codes, _TEXT) or next((_COLOURS[code] for code in sorted(codes) if code in _COLOURS), _PLAIN)
    weight = ' font-weight="bold"' if "1" in codes else ""
    place = _MARGIN + (column + begin) * _WIDTH
    shown = text.strip()
    length = f'textLength="{len(shown) * _WIDTH:.1f}"'
    return f'<text x="{place:.1f}" y="{top}" {length} fill="{colour}"{weight} xml:space="preserve">{escape(shown)}</text>'


if __name__ == "__main__":
    sys.exit(main())
