"""What is wrong with an input, as plain data: Span, Severity, Finding; and HintedError, the base of errors of the environment.

This module owns the fields and the order of findings. It prints nothing and knows no stage: everything that checks
an input imports it, and every formatter does too.
"""

from enum import StrEnum

from gpushare_node.contract.struct import Struct, replace

MAX_CHARACTERS = 1000
"""The longest message or hint."""

Path = tuple[str | int, ...]
"""The position of a value in a document: mapping keys and list indexes from the root down."""


class Severity(StrEnum):
    """How bad a finding is: an error stops the compiler at the end of the stage, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Span(Struct):
    """A range of text. Lines and columns count from 1, in characters; the end column is the first one after it."""

    line: int
    column: int
    end_line: int
    end_column: int


class Finding(Struct):
    """One problem of one document, in the user's words.

    `code` is stable and never reused (`gpushare explain CODE`). `message` states what is wrong, `hints` what to write
    instead, one sentence each. `path` names the value; `on_key`: its key is wrong, not the value. `causes` are the values
    that it contradicts: of several files that make up a document, the last one that wrote or removed one of them is to blame.
    Checks leave `file` and `span` empty: `Source.locate` fills them in from the path.
    """

    code: str
    message: str
    severity: Severity = Severity.ERROR
    hints: tuple[str, ...] = ()
    path: Path = ()
    on_key: bool = False
    causes: tuple[Path, ...] = ()
    file: str = ""
    span: Span | None = None


class Accepted(Struct):
    """A warning that the user accepts, with the reason that the intent gives."""

    finding: Finding
    reason: str


def is_error(finding: Finding) -> bool:
    """Whether the finding stops the compiler."""
    return finding.severity is Severity.ERROR


def shortened(finding: Finding) -> Finding:
    """Return the finding with its sentences cut to a readable length: a value that it quotes may have a million characters."""
    sentences = (finding.message, *finding.hints)
    if max(map(len, sentences)) <= MAX_CHARACTERS:
        return finding
    message, *hints = (text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…" for text in sentences)
    return replace(finding, message=message, hints=tuple(hints))


def pointer(path: Path) -> str:
    """Return the path as a JSON pointer (RFC 6901): `/spec/pools/training/sharing/layout`; the root is the empty string."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def in_order(findings: list[Finding]) -> list[Finding]:
    """Return the findings sorted by file, position and code, as a reader meets them; those without a position come last."""

    def key(finding: Finding) -> tuple[str, int, int, str, str]:
        at = finding.span
        return (finding.file, at.line if at else 1 << 60, at.column if at else 0, finding.code, finding.message)

    return sorted(findings, key=key)


class HintedError(Exception):
    """The environment or the call is at fault, not gpushare: a message of one line, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
