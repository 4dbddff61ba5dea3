"""What an unquoted YAML word means: null, a boolean, a number or text, by the core schema of YAML 1.2.

Owns the typing of plain scalars and the knowledge of where YAML 1.1 readers (PyYAML, and the Go readers of kubectl and
Helm) would type the same characters differently. Knows nothing of documents or positions. Sources for YAML 1.1: PyYAML's
resolver and go-yaml's `resolve.go`.
"""

import re

_WORDS: dict[str, bool | None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

_TRUE_FOR_SOME = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE_FOR_SOME = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})

_INTEGER = re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
# Forms that only some readers parse as numbers, without underscores, which go-yaml and PyYAML ignore.
_NUMBER_FOR_SOME = re.compile(
    r"""[-+]?(?: 0[xX][0-9a-fA-F]+ | 0[oO][0-7]+ | 0[bB][01]+            # hexadecimal with sign or X, octal, binary
             | (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?      # leading zeros, exponents without point or sign
             | [1-9][0-9]*(?::[0-5]?[0-9])+                              # base sixty: 12:34
             | [0-9]+(?::[0-5]?[0-9])+\.[0-9]*
             )\Z""",
    re.VERBOSE,
)
# PyYAML and ruamel.yaml parse these as numbers as well, and fail.
_PREFIX_ALONE = re.compile(r"[-+]?0[xbo]_+\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}.*)?\Z")

# Integers that every reader represents exactly: 64 bits with a sign. The length limit keeps the conversion itself cheap.
_LIMIT = 1 << 63
_MAX_NUMBER_LENGTH = 40

Scalar = str | int | float | bool | None


def resolve(text: str) -> tuple[Scalar, str]:
    """Return the value of an unquoted word, and why it is ambiguous: a clause that follows the word, "" if all readers agree.

    The value of an ambiguous word is the word itself: the user must quote or rewrite it before it is used.
    """
    if text in _WORDS:
        return _WORDS[text], ""
    first = text[0]
    if first.isdigit() or first in "+-.":
        return _numeric(text)
    if text in _TRUE_FOR_SOME or text in _FALSE_FOR_SOME:
        return text, f"is text here, but YAML 1.1 parsers read it as {'true' if text in _TRUE_FOR_SOME else 'false'}"
    if text in ("=", "<<"):
        return text, "is text here, but has a meaning of its own in YAML 1.1"
    return text, ""


def _numeric(text: str) -> tuple[Scalar, str]:
    if _INTEGER.match(text):
        return _bounded(text)
    if _FLOAT.match(text):
        number = float(text) if len(text) <= _MAX_NUMBER_LENGTH else float("inf")
        return (text, _TOO_LARGE) if number in (float("inf"), float("-inf")) else (number, "")
    if _NOT_FINITE.match(text):
        return text, "is not a number that JSON, and so Kubernetes, can hold"
    if _DATE.match(text):
        return text, "is text here, but a date to YAML 1.1 parsers"
    if _NUMBER_FOR_SOME.match(text.replace("_", "")) or _PREFIX_ALONE.match(text):
        return text, "is ambiguous: some YAML parsers read a number, or another number, others read text"
    return text, ""


_TOO_LARGE = "is too large or too long a number: YAML parsers round it differently"


def _bounded(text: str) -> tuple[Scalar, str]:
    number = int(text, 16 if text.startswith("0x") else 10) if len(text) <= _MAX_NUMBER_LENGTH else _LIMIT
    return (number, "") if -_LIMIT <= number < _LIMIT else (text, _TOO_LARGE)
