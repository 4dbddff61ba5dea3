"""Every sleep of the end-to-end tests that is longer than two seconds has its reason beside it: no condition ends it sooner."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

_SUITES = tuple(ROOT / "tests" / "e2e" / name for name in ("cluster", "gitops", "image", "gpu"))
_MAX_SECONDS = 2


def unexplained(text: str) -> Iterator[int]:
    """Yield the lines of sleeps that are longer than that, or as long as a variable says, without a comment there or above."""
    lines = text.splitlines()
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "sleep" and _is_long(call):
            here, above = lines[call.lineno - 1], lines[call.lineno - 2].strip()
            if "#" not in here and not above.startswith("#"):
                yield call.lineno


def _is_long(call: ast.Call) -> bool:
    match call.args[0]:
        case ast.Constant(value=int() | float() as value):
            return value > _MAX_SECONDS
        case _:
            return True


@pytest.mark.parametrize(
    "file", [path for suite in _SUITES for path in sorted(suite.rglob("*.py"))], ids=lambda path: str(path.relative_to(ROOT))
)
def test_wait_longer_than_two_seconds_has_a_comment(file: Path) -> None:
    assert list(unexplained(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import time\ntime.sleep(3)", [2]),
        ("import time\ntime.sleep(left)", [2]),
        ("import time\ntime.sleep(3)  # kubelet reports that late", []),
        ("import time\n# Kubelet reports that late.\ntime.sleep(3)", []),
        ("import time\ntime.sleep(0.1)", []),
    ],
)
def test_the_check_sees_waits_without_a_reason(text: str, lines: list[int]) -> None:
    assert list(unexplained(text)) == lines
