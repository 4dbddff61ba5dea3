"""The colours of profiles: people with any colour vision deficiency can distinguish them, and read what is written on them."""

from itertools import combinations
from math import dist

import pytest

from gpushare.core import palette
from gpushare.core.palette import DARK, LIGHT, Shades
from gpushare.offering import modes
from gpushare.report import terminal

Vector = tuple[float, ...]
SIGHTS: dict[str, tuple[Vector, Vector, Vector]] = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Matrices of severity 1.0 for linear RGB: Machado, Oliveira, Fernandes, IEEE TVCG 15 (2009)."""
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)
MAPS = pytest.mark.parametrize("part", ["colours", "modes"])
THEMES = pytest.mark.parametrize("shades", [LIGHT, DARK], ids=["light", "dark"])


def linear(colour: str) -> Vector:
    parts = (channel / 255 for channel in terminal.channels(colour))
    return tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)


def product(matrix: tuple[Vector, ...], vector: Vector) -> Vector:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def lab(rgb: Vector) -> Vector:
    """CIE L*a*b* of linear RGB, D65."""
    x, y, z = (part / white for part, white in zip(product(TO_XYZ, rgb), WHITE, strict=True))
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen(colour: str, sight: str) -> Vector:
    return lab(tuple(min(1.0, max(0.0, part)) for part in product(SIGHTS[sight], linear(colour))))


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""
    low, high = sorted(product(TO_XYZ, linear(colour))[1] for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", SIGHTS)
@THEMES
@MAPS
def test_any_two_colours_are_distinguishable_with_colour_blindness(shades: Shades, part: str, sight: str) -> None:
    points = {kind: seen(colour, sight) for kind, colour in getattr(shades, part).items()}
    assert [(a, b) for a, b in combinations(points, 2) if dist(points[a], points[b]) < 10] == []


@THEMES
@MAPS
def test_text_on_each_colour_can_be_read(shades: Shades, part: str) -> None:
    assert [kind for kind, colour in getattr(shades, part).items() if contrast(shades.ink, colour) < 4.5] == []


def test_both_themes_have_a_colour_for_every_kind() -> None:
    assert LIGHT.colours.keys() == DARK.colours.keys()
    assert LIGHT.modes.keys() == DARK.modes.keys() == {variant.word for variant in modes.VARIANTS}


@pytest.mark.parametrize(
    ("profile", "kind"),
    [
        (None, "whole"),
        ("1g.5gb", "1g"),
        ("1g.24gb+me.all", "1g"),
        ("7g.80gb", "7g"),
        ("5g.60gb", "other"),
        ("strange", "other"),
    ],
)
def test_a_profile_has_the_colour_of_its_size(profile: str | None, kind: str) -> None:
    assert palette.kind(profile) == kind
    assert LIGHT.of(profile) == LIGHT.colours[kind]


@pytest.mark.parametrize(("colour", "number"), [("#000000", 16), ("#ffffff", 231), ("#ff0000", 196), ("#5f87af", 67)])
def test_the_nearest_of_256_colours(colour: str, number: int) -> None:
    assert terminal.nearest_of_256(colour) == number


@THEMES
def test_256_colours_keep_the_kinds_apart_and_the_text_readable(shades: Shades) -> None:
    numbers = [terminal.nearest_of_256(colour) for colour in shades.colours.values()]
    assert len(set(numbers)) == len(numbers)
