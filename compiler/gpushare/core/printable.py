"""Text from outside, made safe to print: no input may control the terminal. Imports nothing of ours."""

import re

_UNSAFE = "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"


def visible(text: str) -> str:
    """Return the text with control and direction characters escaped."""
    return text if text.isprintable() else re.sub(_UNSAFE, lambda match: match[0].encode("unicode_escape").decode(), text)
