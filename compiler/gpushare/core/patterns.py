"""Regular expressions that are compiled at their first use. Imports nothing of ours.

In Python, compiling costs far more than matching. A call of the command line imports about sixty patterns and uses twenty:
compiling all of them at import took a quarter of a cold `compile` (docs/decisions.md).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

_compile = re.compile


class _Late:
    """A pattern that is compiled when an attribute is first read, and then caches it: later calls cost no more than re's."""

    def __init__(self, text: str, flags: int) -> None:
        self._given = (text, flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(_compile(*self._given), name)
        self.__dict__[name] = found
        return found


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like that of `re.compile`, compiled at its first use: an error in `text` is raised only then."""
    return cast("re.Pattern[str]", _Late(text, flags))


@contextmanager
def compiled_late() -> Iterator[None]:
    """Make `re.compile` return such patterns in the context, to import a library that compiles many and needs few."""
    re.compile = pattern  # type: ignore[assignment]  # modules call it with the arguments of our signature
    try:
        yield
    finally:
        re.compile = _compile
