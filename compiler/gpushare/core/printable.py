"""Text from outside, made safe to print: no input may control the terminal. Imports nothing of ours."""

import re

_UNSAFE = "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"


def visible(text: str) -> str:
    """Return the text with control and direction characters escaped."""
    return text if text.isprintable() else re.sub(_UNSAFE, lambda match: match[0].encode("unicode_escape").decode(), text)


def clean(value: object, limit: int = 1_000) -> str:
    """Return text of a cluster as it may be printed: no control characters, at most `limit` characters. Not text: empty."""
    if not isinstance(value, str):
        return ""
    return visible(value if len(value) <= limit else value[: limit - 1] + "…")
