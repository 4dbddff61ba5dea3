"""The pictures of sessions in a terminal: what the commands print today."""

import runpy
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT

SESSION = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/session.py")))


@pytest.fixture(params=SESSION.SESSIONS, ids=lambda session: session.name)
def session(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_session_picture_is_current(session: Any) -> None:
    assert session.picture.read_text(encoding="utf-8") == SESSION.picture(session), "run `make docs`"


def test_session_text_is_inside_the_picture_without_overlap(session: Any) -> None:
    root = ElementTree.fromstring(session.picture.read_text(encoding="utf-8"))
    ends: dict[float, float] = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        top, begin, width = (float(text.attrib[name]) for name in ("y", "x", "textLength"))
        assert begin >= ends.get(top, 0) - 0.2
        ends[top] = begin + width
        assert ends[top] <= float(root.attrib["width"])
        assert top <= float(root.attrib["height"])


def test_program_output_is_escaped_in_the_picture() -> None:
    [run] = SESSION._runs("\x1b[1;31m<b>&\x1b[0m")
    assert "&lt;b&gt;&amp;" in SESSION._text(*run[:2], 10, run[2])
