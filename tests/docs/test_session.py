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


def test_the_picture_is_what_the_commands_print(session: Any) -> None:
    assert session.picture.read_text(encoding="utf-8") == SESSION.picture(session), "run `make docs`"


def test_every_character_is_inside_of_it_and_no_text_is_on_another(session: Any) -> None:
    root = ElementTree.fromstring(session.picture.read_text(encoding="utf-8"))
    ends: dict[float, float] = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        top, begin, width = (float(text.attrib[name]) for name in ("y", "x", "textLength"))
        assert begin >= ends.get(top, 0) - 0.2
        ends[top] = begin + width
        assert ends[top] <= float(root.attrib["width"])
        assert top <= float(root.attrib["height"])


def test_what_the_program_prints_cannot_be_more_than_text() -> None:
    [run] = SESSION._runs("\x1b[1;31m<b>&\x1b[0m")
    assert "&lt;b&gt;&amp;" in SESSION._text(*run[:2], 10, run[2])
