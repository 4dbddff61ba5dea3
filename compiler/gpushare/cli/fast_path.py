"""The most frequent calls, parsed without click: `check`, `compile` and `show` in their simplest form.

Accepts a call or leaves it to click: abbreviations, `--option=value`, help, errors and every other command are click's, which
is imported only for them. A test checks that both parse the same arguments.
"""

import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from gpushare.cli import compile_commands
from gpushare.cli.exits import ExitCode

FINDINGS_FORMATS = ("text", "json", "github", "sarif")
PRODUCT_FORMATS = ("text", "json")

_STRICT = {"--strict": "strict"}
_CALLS: Mapping[str, tuple[Callable[..., ExitCode], Mapping[str, str], Mapping[str, tuple[str, ...] | None]]] = {
    "check": (compile_commands.check, _STRICT, {"--format": FINDINGS_FORMATS}),
    "show": (compile_commands.show, _STRICT, {"--format": PRODUCT_FORMATS}),
    "compile": (compile_commands.compile_bundle, {**_STRICT, "--check": "check"},
                {"--format": FINDINGS_FORMATS, "-o": None, "--output": None}),
}
"""Command → its function, its flags with their parameters, its options with their legal words; None: a folder."""


def understood(arguments: list[str]) -> Callable[[], ExitCode] | None:
    """Return the call that the arguments make; None if click must parse them."""
    if not arguments or arguments[0] not in _CALLS:
        return None
    does, flags, options = _CALLS[arguments[0]]
    given: dict[str, object] = {}
    rest = iter(arguments[1:])
    for word in rest:
        name: str
        value: object
        if word in flags:
            name, value = flags[word], True
        elif word in options:
            folder, value = options[word] is None, next(rest, "")
            if not (_is_folder_to_be(value) if folder else value in (options[word] or ())):
                return None
            name = "output" if folder else "style"
        elif _is_readable(word):
            name, value = "intent", word
        else:
            return None
        if name in given:
            return None
        given[name] = value
    if "intent" not in given:
        return None
    return partial(does, **{**_left_out(flags, options), **given})


def _left_out(flags: Mapping[str, str], options: Mapping[str, tuple[str, ...] | None]) -> dict[str, object]:
    default: dict[str, object] = {**dict.fromkeys(flags.values(), False), "style": None, "overlays": ()}
    if options["--format"] is PRODUCT_FORMATS:
        default |= {"style": "text", "pools": ()}
    return {**default, "output": None} if "-o" in options else default


def _is_readable(word: str) -> bool:
    """Whether click would accept the word as INTENT: the command itself reports a file that does not exist."""
    if word == "-":
        return True
    return bool(word) and word[0] != "-" and "\0" not in word and (not os.path.lexists(word) or os.access(word, os.R_OK))


def _is_folder_to_be(word: str) -> bool:
    if not word or word[0] == "-" or "\0" in word:
        return False
    try:
        return stat.S_ISDIR(Path(word).stat().st_mode) and os.access(word, os.R_OK)
    except FileNotFoundError:
        return True
    except OSError:
        return False
