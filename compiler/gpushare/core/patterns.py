"""Regular expressions that are compiled at their first use. Imports nothing of ours.

Compiling costs Python far more than matching. A call of the command line imports some sixty patterns and uses twenty: with
all of them compiled at import, they were a quarter of a cold `compile` (docs/decisions.md).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

_compile = re.compile


class _Late:
    """A pattern to be. What is asked of it once is its own attribute from then on, and costs no more than re's."""

    def __init__(self, text: str, flags: int) -> None:
        self._given = (text, flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(_compile(*self._given), name)
        self.__dict__[name] = found
        return found


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """What `re.compile` returns, compiled when something is first asked of it: so a mistake in `text` is told late."""
    return cast("re.Pattern[str]", _Late(text, flags))


@contextmanager
def compiled_late() -> Iterator[None]:
    """While this lasts, `re.compile` returns such patterns too: for importing a library that compiles many and needs few."""
    re.compile = pattern  # type: ignore[assignment]  # our own signature is what modules call it with
    try:
        yield
    finally:
        re.compile = _compile
