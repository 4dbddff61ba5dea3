"""Unquoted words: what is taken without quotes means the same to YAML 1.1 and YAML 1.2."""

import re
from collections.abc import Callable
from itertools import product

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpushare.reading.tree import resolve
from tests.support import scale

CORE: list[tuple[re.Pattern[str], Callable[[str], object]]] = [
    (re.compile(r"(null|Null|NULL|~|)\Z"), lambda text: None),
    (re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]+\Z"), int),
    (re.compile(r"0o[0-7]+\Z"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+\Z"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z"), float),
]
"""The core schema of the YAML 1.2.2 specification, section 10.3.2."""


def core(text: str) -> object:
    return next((value(text) for pattern, value in CORE if pattern.match(text)), text)


PYYAML = yaml.SafeLoader("")


def by_pyyaml(text: str) -> object:
    tag = PYYAML.resolve(yaml.ScalarNode, text, (True, False))
    try:
        return PYYAML.construct_object(yaml.ScalarNode(tag, text))
    except (ValueError, yaml.YAMLError) as error:
        return error


SPECIAL = "null Null nUll true TRUE tRue yes Yes no NO on Off y Y n N = << .inf -.INF .nan .NaN inf nan ~ 2001-01-01 1:2:3"
WORDS = st.text(alphabet="0123456789-+._:eExXobBynTZ", max_size=9) | st.sampled_from(SPECIAL.split())


@settings(max_examples=scale.examples(3000))
@given(WORDS)
@example("1.")
@example("-.5")
@example("08")
@example("2001-12-14t21:59:43.10-05:00")
@example("9223372036854775808")
def test_unambiguous_scalar_is_equal_in_yaml_1_1_and_1_2(text: str) -> None:
    value, doubt = resolve(text)
    if not doubt:
        assert repr(value) == repr(core(text))
        assert repr(value) == repr(by_pyyaml(text))


KEYWORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", "-.inf", ".nan", "none")


def test_every_short_unambiguous_scalar_is_equal_in_yaml_1_1_and_1_2() -> None:
    """All of up to four characters that numbers and dates are made of, and the keywords in every mixture of cases."""
    short = ("".join(word) for length in range(5) for word in product("0189+-._:eExo", repeat=length))
    cases = ("".join(word) for keyword in KEYWORDS for word in product(*zip(keyword.lower(), keyword.upper(), strict=True)))
    sure = {text: value for text in (*short, *cases) for value, doubt in [resolve(text)] if not doubt}
    assert [text for text, value in sure.items() if not repr(value) == repr(core(text)) == repr(by_pyyaml(text))] == []
    assert sum(not isinstance(value, str) for value in sure.values()) > 500


IN_DOUBT = """
y Y yes Yes YES on On ON n N no No NO off Off OFF 010 08 00 -010 0o17 0O17 -0o7 -0x1F 0X1F 0b1 -0b1 0B1 1_000 0x1_F 1_ 12:34
-12:34 1:2:3.5 0:30.5
1e3 1E3 1.5e3 1e+3 -.5 +.5 .5e3 1_0.5 +_1 2001-01-01 2001-1-1 2001-01-01T00:00:00Z = << .inf -.INF +.Inf .nan
0o_ 9223372036854775808 -9223372036854775809 18446744073709551616 1.0e+999
"""
TEXT = """
yEs oN none even 3g.20gb 1g.5gb 10s 30m 80Gi 2G v1.2.3 1.2.3 100% 1-2 12:60 05:30 60:1g 0000:3b:00.0 0o8 0b2 0xg 1e 1e+ inf nan
gpu-01 2001-01 a=b <<x 0x + - . .. _1
"""


@pytest.mark.parametrize("text", IN_DOUBT.split())
def test_scalar_that_parsers_read_differently_is_ambiguous(text: str) -> None:
    assert resolve(text)[1]
    assert resolve(text)[0] == text


@pytest.mark.parametrize("text", TEXT.split())
def test_text_that_all_readers_take_for_text_needs_no_quotes(text: str) -> None:
    assert resolve(text) == (text, "")


DIGITS = ["9" * 1_000_000, "0x" + "f" * 1_000_000, "9" * 1_000_000 + ".5", "1." + "0" * 5000, "1_" * 500_000]


@pytest.mark.parametrize("text", DIGITS, ids=["decimal", "hexadecimal", "fraction", "zeros", "underscores"])
def test_a_number_of_a_million_digits_is_not_computed(text: str) -> None:
    assert resolve(text)[1]
