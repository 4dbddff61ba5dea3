"""Patterns that are compiled late are the patterns that they would have been."""

import re
import subprocess
import sys

import pytest

from gpushare.core import emit
from gpushare.core.patterns import compiled_late, pattern
from gpushare.reading import source


def test_a_pattern_does_what_a_compiled_one_does() -> None:
    late, compiled = pattern("(a+)(b)?", re.IGNORECASE), re.compile("(a+)(b)?", re.IGNORECASE)
    for _ in range(2):
        assert late.sub("x", "caAbd") == compiled.sub("x", "caAbd") == "cxd"
    assert (late.pattern, late.flags, late.groups) == (compiled.pattern, compiled.flags, compiled.groups)
    found = late.fullmatch("AAB")
    assert found
    assert found.groups() == ("AA", "B")


def test_a_mistake_in_a_pattern_is_reported_when_it_is_used() -> None:
    late = pattern("(")
    with pytest.raises(re.error):
        late.match("")


def test_re_is_itself_again_behind_a_late_import_that_fails() -> None:
    compiled = re.compile
    with pytest.raises(ImportError, match="broken"), compiled_late():
        raise ImportError("broken")
    assert re.compile is compiled


@pytest.mark.parametrize("late", [source._FORBIDDEN, emit._ESCAPED, emit._NOT_IN_LITERAL], ids=["read", "quoted", "literal"])
def test_what_python_calls_printable_needs_no_such_pattern(late: re.Pattern[str]) -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    assert {character for character in characters if late.match(character) and character.isprintable()} <= {"\\", '"'}


def test_pyyaml_reads_in_python_as_ever_behind_our_import() -> None:
    text = "{when: 2001-12-14, at: 12:30, size: 0x10, real: 1e3, on: no, text: é, plain: x}"
    read = f"import yaml; print(yaml.load({text!r}, yaml.SafeLoader)); print(yaml.dump({{'a': 'no', 'b': ' é'}}))"
    ours, plain = (
        subprocess.run([sys.executable, "-c", f"{first}{read}"], capture_output=True, text=True, check=True).stdout
        for first in ("import gpushare.reading.source; ", "")
    )
    assert ours == plain
    assert "datetime.date(2001, 12, 14)" in ours
