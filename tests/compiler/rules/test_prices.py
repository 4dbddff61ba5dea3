"""Prices of GPU-hours: names, forms and currencies."""

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core import prices
from gpushare.core.prices import Price
from gpushare.intent import reader
from gpushare.reading import source
from gpushare.reading.overlay import merge
from tests.compiler.rules.intents import check, check_source, codes, found, one, pool, written


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tesla-t4", "that is the product name: write t4"),
        ("notebook", "did you mean notebooks?"),
        ("lab", "`gpushare cards` lists all cards"),
    ],
)
def test_a_price_of_what_does_not_exist(name: str, hint: str) -> None:
    (finding,) = check(written(pool(), prices=f"{{{name}: 1/h}}"))
    assert (finding.code, finding.path, finding.on_key) == ("GS221", ("spec", "prices", name), True)
    assert finding.hints == (hint,)


def test_pools_cards_of_the_catalogue_and_own_cards_have_prices() -> None:
    own = '{my-card: {name: NVIDIA X, computeCapability: "8.6", memoryMiB: 12288}}'
    assert codes(prices="{notebooks: 1/h, t4: 0/h, l4: 0.000001/h, my-card: 999999999.5/h}", cards=own) == []


@pytest.mark.parametrize("text", ["{t4: 1 EUR/h, l4: 1 USD/h}", "{t4: 1 EUR/h, l4: 1/h}"])
def test_prices_in_several_currencies(text: str) -> None:
    assert one("GS222", prices=text)[0] == "/spec/prices"


@pytest.mark.parametrize(
    "price", ["0.35", "-1/h", "1 euro/h", "1EUR/h", "1/d", "'1,5/h'", "1e3/h", ".5/h", "1 EUR", "'1/h\\n'"]
)
def test_what_is_no_price_is_malformed(price: str) -> None:
    (finding,) = check(written(pool(), prices=f"{{t4: {price}}}"))
    assert finding.code in {"GS103", "GS105"}
    assert "what an hour of one GPU costs" in finding.message
    assert any("0.35 EUR/h" in text for text in (finding.message, *finding.hints))


def test_no_price_at_all() -> None:
    assert found(written(pool(), prices="{t4: }"), "GS103")[0][0] == "/spec/prices/t4"


def test_schema_and_parser_take_the_same_texts() -> None:
    for text in ("0/h", "0.35/h", "0.35 EUR/h", "123456789.123456 CHF/h"):
        assert prices.parse(text) is not None
        assert prices.show(prices.parse(text) or Price(per_hour=-1)) == text
        assert codes(prices=f"{{t4: {text}}}") == []


def test_overlay_sets_and_removes_a_price() -> None:
    base = source.read(written(pool(), prices="{t4: 0.35 EUR/h, notebooks: 1 EUR/h}").encode(), "base.yaml")
    over = source.read(b"spec: {prices: {t4: 0.5 EUR/h, notebooks: null}}", "north.yaml")
    merged = merge([base, over])
    assert reader.build(merged.data).prices == {"t4": Price(per_hour=0.5, currency="EUR")}
    wrong = source.read(b"spec: {prices: {t4: 1 USD/h}}", "north.yaml")
    (finding,) = [each for each in check_source(merge([base, wrong])) if each.code == "GS222"]
    assert finding.code == "GS222"


def test_only_the_intent_of_a_bundle_has_prices() -> None:
    def files(text: str) -> dict[str, str]:
        made = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
        return {artifact.path: artifact.text for artifact in made.artifacts if artifact.path != lock.FILE}

    without, priced = files(written(pool())), files(written(pool(), prices="{t4: 0.5/h, notebooks: 0.35/h}"))
    assert {path for path in without if without[path] != priced[path]} == {"intent.yaml"}
    assert '  prices:\n    notebooks: "0.35/h"\n    t4: "0.5/h"\n' in priced["intent.yaml"]
    assert "prices" not in without["intent.yaml"]
