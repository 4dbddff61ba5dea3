"""Overlays: the merged data is RFC 7396's, and every position is in the file that the value comes from."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core import emit
from gpushare.core.diagnostics import Finding, Path
from gpushare.reading import overlay, source, tree
from gpushare.reading.overlay import Merged

KEYS = st.sampled_from(["a", "b", "c", "d e", "ä"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text("xyz \n", max_size=6))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


def merge_patch(target: Any, patch: Any) -> Any:
    """The algorithm of RFC 7396, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def merged(*texts: str) -> Any:
    names = ("base.yaml", *(f"over{number}.yaml" for number in range(1, len(texts))))
    return overlay.merge([source.read(text.encode(), name) for text, name in zip(texts, names, strict=True)])


def located(document: Merged, *path: str | int, on_key: bool = False, causes: tuple[Path, ...] = ()) -> tuple[str, int, int]:
    found = document.locate(Finding(code="GS101", message="m", path=path, on_key=on_key, causes=causes))
    assert found.span is not None
    return found.file, found.span.line, found.span.column


def scalars(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in scalars(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in scalars(inner, (*path, index))]
    return [(path, value)]


@given(DOCUMENTS, st.lists(DOCUMENTS, min_size=1, max_size=3), st.sampled_from(["\n", "\r\n", "\r", ""]))
def test_overlays_are_merged_as_json_merge_patches(base: dict[str, Any], patches: list[dict[str, Any]], end: str) -> None:
    texts = [emit.yaml_text(one) for one in (base, *patches)]
    # What follows a block scalar belongs to its text.
    texts = [text if "|" in text else text.rstrip("\n").replace("\n", end or "\n") + end for text in texts]
    wanted = base
    for patch in patches:
        wanted = merge_patch(wanted, patch)
    document = merged(*texts)
    assert document.data == wanted
    for path, value in scalars(wanted):
        file, line, column = located(document, *path)
        part = document.texts[file]
        # The file itself has this value at this place.
        own = part.locate(Finding(code="GS101", message="m", path=_path_at(part, line, column)))
        assert own.span is not None
        assert (own.span.line, own.span.column) == (line, column)
        assert _value_at(part.data, _path_at(part, line, column)) == value


def _path_at(part: source.Source, line: int, column: int) -> Path:
    """The path of the scalar of a file that begins there."""
    for path, _ in scalars(part.data):
        at = part.locate(Finding(code="GS101", message="m", path=path)).span
        if at and (at.line, at.column) == (line, column):
            return path
    raise AssertionError(f"{part.file} has no value at {line}:{column}")


def _value_at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


BASE = "spec:\n  pools:\n    a: {card: t4, mode: x}\n    b: 1\n"
OVER = "# only for production\nspec:\n  pools:\n    a: {card: a100}\n    b: null\n    c: 2\n"


def test_overlay_value_is_located_where_last_written() -> None:
    document = merged(BASE, OVER)
    assert located(document, "spec", "pools", "a", "card") == ("over1.yaml", 4, 15)
    assert located(document, "spec", "pools", "a", "card", on_key=True) == ("over1.yaml", 4, 9)
    assert located(document, "spec", "pools", "a", "mode") == ("base.yaml", 3, 25)
    assert located(document, "spec", "pools", "c") == ("over1.yaml", 6, 8)
    assert located(document) == ("base.yaml", 1, 1)


def test_removed_value_is_located_at_the_overlays_null() -> None:
    assert located(merged(BASE, OVER), "spec", "pools", "b") == ("over1.yaml", 5, 5)
    assert located(merged(BASE, OVER, "spec: {pools: {b: 7}}\n"), "spec", "pools", "b") == ("over2.yaml", 1, 19)
    again = merged(BASE, OVER, "spec: {pools: none}\n", "spec: {pools: {x: 1}}\n")
    assert located(again, "spec", "pools", "b") == ("over3.yaml", 1, 8)


def test_emptied_mapping_is_located_at_the_last_null() -> None:
    document = merged("spec:\n  a: {b: 1, c: 2}\n", "spec: {a: {b: null}}\n", "spec: {a: {c: null}}\n")
    assert located(document, "spec", "a") == ("over2.yaml", 1, 12)
    assert located(merged("a: {}\n", "a: {b: null}\n"), "a") == ("base.yaml", 1, 4)
    filled = merged("spec:\n  a: {b: 1}\n", "spec: {a: {b: null}}\n", "spec: {a: {b: 3}}\n")
    assert located(filled, "spec", "a") == ("over2.yaml", 1, 11)


def test_fully_replaced_mapping_is_located_in_the_overlay() -> None:
    base = "a: {b: {x: 1}, c: {u: 1}}\n"
    whole = merged(base, "a: {b: {x: 2}}\n")
    assert located(whole, "a", "b") == ("over1.yaml", 1, 8)
    assert located(whole, "a", "b", on_key=True) == ("over1.yaml", 1, 5)
    assert located(whole, "a", on_key=True) == ("base.yaml", 1, 1)
    assert located(merged(base, "a: {c: {k: 2}}\n"), "a", "c") == ("base.yaml", 1, 19)
    assert located(merged(base, "a: {b: {x: 2}, c: {u: 3}}\n"), "a", on_key=True) == ("over1.yaml", 1, 1)
    assert located(merged(base, "a: {b: {}}\n"), "a", "b") == ("base.yaml", 1, 8)


def test_contradiction_is_located_at_the_later_value() -> None:
    document = merged("card: a\nmode: m\nquotas: {p: 1}\npools: {p: 1, q: 1}\n", "card: t\npools: {p: null}\n")
    assert located(document, "mode", causes=(("card",),)) == ("over1.yaml", 1, 7)
    assert located(document, "mode", causes=(("absent",), ("quotas", "absent"))) == ("base.yaml", 2, 7)
    assert located(document, "quotas", "p", causes=(("pools", "p"),)) == ("over1.yaml", 2, 9)
    assert located(merged("card: a\nmode: m\n", "mode: k\n"), "mode", causes=(("card",),)) == ("over1.yaml", 1, 7)
    assert located(merged("card: a\nmode: m\n", "x: 1\n"), "mode", causes=(("card",),)) == ("base.yaml", 2, 7)


def test_text_findings_cover_every_overlay() -> None:
    document = merged("a: 1\na: 2\n", "b: {<<: 3}\n", "")
    assert [(one.code, one.file) for one in document.findings] == [
        ("GS004", "base.yaml"),
        ("GS009", "over1.yaml"),
        ("GS011", "over2.yaml"),
    ]


def test_an_overlay_has_the_bounds_of_an_intent() -> None:
    deep = "[" * (tree.MAX_DEPTH + 1) + "]" * (tree.MAX_DEPTH + 1)
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in ("ab", "bc", "cd", "de", "ef")
    )
    for text, code in (
        (f"a: {deep}\n", "GS008"),
        (bomb, "GS007"),
        ("a: !!str 1\n", "GS010"),
        ("a: 1\n---\nb: 1\n", "GS006"),
        ("#" * (source.MAX_BYTES + 1), "GS002"),
    ):
        assert [(one.code, one.file) for one in merged("a: 1\n", text).findings][:1] == [(code, "over1.yaml")]


def test_size_limit_applies_to_merged_overlays(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2000
    monkeypatch.setattr(overlay, "MAX_WEIGHT", most)
    half = "a%d: [" + ", ".join(["1"] * (most // 2)) + "]\n"
    document = merged(half % 1, half % 2, half % 3)
    assert [(one.code, one.file) for one in document.findings] == [("GS008", "over2.yaml")]


def test_overlay_that_is_not_a_mapping_replaces_everything() -> None:
    document = merged(BASE, "3\n")
    assert document.data == 3
    assert located(document) == ("over1.yaml", 1, 1)


def test_nulls_in_lists_are_kept_and_nulls_of_absent_keys_ignored() -> None:
    assert merged("a: 1\n", "b: {c: null, d: [null]}\nx: null\n").data == {"a": 1, "b": {"d": [None]}}
