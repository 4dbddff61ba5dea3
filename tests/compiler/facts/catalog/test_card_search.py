"""Which cards a word may mean: product names, ids that are nearly right, and never silently another memory size."""

import re

import pytest

from gpushare.facts.catalog import card_search, cards
from gpushare.facts.catalog.cards import Catalog

CATALOG = Catalog()


@pytest.mark.parametrize("card_id", cards.ids())
def test_product_name_of_every_card_is_answered_with_its_id(card_id: str) -> None:
    card = cards.load(card_id)
    for name in (card.name, card.product, card.name.removeprefix("NVIDIA "), card.product.lower()):
        assert card_search.hints(name, CATALOG) == (f"that is the product name: write {card_id}",)


@pytest.mark.parametrize("card_id", [card_id for card_id in cards.ids() if cards.load(card_id).memory_gb_nominal])
def test_card_of_another_memory_size_is_proposed_only_as_such(card_id: str) -> None:
    plain = re.sub(r"-\d+gb(?=$|-)", "", card_id)
    for size in (7, 65, 999):
        for form in (f"{plain}-{size}gb", f"{plain} {size} GB", f"{plain.upper()}-{size}GiB"):
            (hint,) = card_search.hints(form, CATALOG)
            assert hint.startswith(f"no card of {size} GB is near; of another memory size: ")


@pytest.mark.parametrize("word", ["rtx-3080", "RTX 4070 Ti", "a100", "h100-sxm5", "A2000", "rtx"])
def test_similar_cards_are_listed_with_their_memory(word: str) -> None:
    (hint,) = card_search.hints(word, CATALOG)
    named = re.split(r", | or ", hint.removeprefix("nearest: "))
    assert named
    assert all(re.search(r"\d+gb$|\(\d+ GB\)$", one) for one in named)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("A100-40GB", "nearest: a100-pcie-40gb or a100-sxm4-40gb"),
        ("v100-32g", "nearest: v100-pcie-32gb, v100-sxm2-32gb or v100s-pcie-32gb"),
        ("L4 24GB", "nearest: l4 (24 GB)"),
        ("rtx-3060-8gb", "no card of 8 GB is near; of another memory size: rtx-3060 (12 GB)"),
    ],
)
def test_the_size_that_was_written_chooses_among_the_cards(word: str, hint: str) -> None:
    assert card_search.hints(word, CATALOG) == (hint,)


@pytest.mark.parametrize("word", ["", "zzz", "gaudi-3", "a" * 100_000])
def test_unrelated_word_gets_no_card_suggestion(word: str) -> None:
    assert card_search.hints(word, CATALOG) == ()
