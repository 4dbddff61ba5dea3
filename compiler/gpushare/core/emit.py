"""The only writer of YAML and JSON. Imports nothing of ours.

YAML 1.1 (PyYAML), YAML 1.2 and Go's readers (Helm, kubectl) read every scalar that it writes as the same value, and the text
passes yamllint's default rules. Other dumpers leave `1e3`, `0o17`, `no` or `on` unquoted, which one of the readers takes for
something else.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from io import StringIO
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_KEYWORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf", "infinity"})
# What must be escaped in double quotes: YAML's non-printable characters, its line breaks, and the byte order mark.
_ESCAPED = re.compile('[\\\\"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]')
_NAMED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
# What a literal block cannot keep unchanged, or only with an indentation or chomping indicator, or what yamllint rejects.
_NOT_LITERAL = re.compile("\\A[ \n]|[ ](?:\n|\\Z)|\n{4}|\n\n\\Z")
_NOT_IN_LITERAL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_NESTED = (dict, list, tuple)
_MAX_KEY_LENGTH = 1000  # YAML's readers reject an implicit key of more than 1,024 characters
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def yaml_text(value: Any, header: str = "") -> str:
    """Return a YAML document of dict, list, tuple, str, int, float, bool and None, after `header` as comment lines.

    Block style, mapping order kept, list items indented by two, final newline. Raises TypeError for other types and for
    keys that are not strings, ValueError for text with half a surrogate pair: all three are bugs of the caller.
    """
    out = StringIO()  # a list of the lines takes five times the memory of their text
    out.writelines(f"# {line}".rstrip() + "\n" for line in header.splitlines())
    if value and isinstance(value, _NESTED):
        _nested(value, "", "", out.write)
    else:
        out.write(_scalar(value, "") + "\n")
    return out.getvalue()


def json_text(value: Any) -> str:
    """Return a JSON document, indented by two spaces, with non-ASCII characters unescaped and a final newline."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal documents give equal text. For digests and machines."""
    return _CANONICAL.encode(value)


Write = Callable[[str], object]


def _nested(value: Any, indent: str, lead: str, write: Write) -> None:
    """Write the lines of a non-empty mapping or list.

    `lead` is written before the first line (a list item's dash), `indent` before the others.
    """
    if isinstance(value, dict):
        _mapping(value, indent, lead, write)
    else:
        _sequence(value, indent, lead, write)


def _mapping(value: dict[str, Any], indent: str, lead: str, write: Write) -> None:
    deeper = indent + "  "
    for key, item in value.items():
        if item and isinstance(item, _NESTED):
            write(f"{lead}{_key(key, indent)}\n")
            _nested(item, deeper, deeper, write)
        else:
            write(f"{lead}{_key(key, indent)} {_scalar(item, deeper)}\n")
        lead = indent


def _sequence(value: list[Any] | tuple[Any, ...], indent: str, lead: str, write: Write) -> None:
    deeper = indent + "  "
    for item in value:
        if item and isinstance(item, _NESTED):
            _nested(item, deeper, f"{lead}- ", write)
        else:
            write(f"{lead}- {_scalar(item, deeper)}\n")
        lead = indent


def _key(key: object, indent: str) -> str:
    """Return the key with its colon."""
    if not isinstance(key, str):
        raise TypeError(f"a mapping key of type {type(key).__name__}: {key!r}")
    text = _text(key)
    return f"{text}:" if len(text) <= _MAX_KEY_LENGTH else f"? {text}\n{indent}:"


def _scalar(value: object, indent: str) -> str:
    if isinstance(value, str):
        return _literal(value, indent) if "\n" in value and indent and _is_literal(value) else _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, _NESTED):
        return "{}" if isinstance(value, dict) else "[]"
    raise TypeError(f"no YAML for {type(value).__name__}: {value!r}")


def _is_literal(value: str) -> bool:
    return not _NOT_LITERAL.search(value) and not _NOT_IN_LITERAL.search(value)


def _literal(value: str, indent: str) -> str:
    lines = value.removesuffix("\n").split("\n")
    mark = "|" if value.endswith("\n") else "|-"
    return "\n".join([mark, *(indent + line if line else "" for line in lines)])


@lru_cache(maxsize=1 << 14)  # names are in many places: saves 60 ms of a compile of 300 pools
def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _KEYWORDS:
        return value
    return '"' + _ESCAPED.sub(_escape, value) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"half a surrogate pair cannot be written: U+{code:04X}")
    return _NAMED.get(character) or (f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}")


def _float(value: float) -> str:
    text = repr(value)
    if text.endswith(("inf", "nan")):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    # YAML 1.1 accepts an exponent only after a fraction and with a sign, which repr always writes.
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{power}"
