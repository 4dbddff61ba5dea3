"""The schema that editors complete and check with: names of the catalogue, and a description of every field."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from gpushare.cli.catalogue import editors_intent
from gpushare.facts.catalog import cards
from tests.support.paths import ROOT

SCHEMA = editors_intent()
INTENT = yaml.safe_load((ROOT / "examples/05-h100-mig-time-slicing/intent.yaml").read_text())


def fields(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every field that a person can write, references followed, each with its schema."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] | {"said": schema.get("description")}
    yield path, schema
    below = {**schema.get("properties", {})}
    below |= {step: schema[step] for step in ("additionalProperties", "items") if isinstance(schema.get(step), dict)}
    for name, one in below.items():
        yield from fields(one, (*path, name))


FIELDS = dict(fields(SCHEMA))


def test_every_field_has_a_description() -> None:
    assert len(FIELDS) > 100
    assert not [path for path, field in FIELDS.items() if not (field.get("description") or field.get("said"))]


def pool(**changed: Any) -> dict[str, Any]:
    intent: dict[str, Any] = copy.deepcopy(INTENT)
    name = next(iter(intent["spec"]["pools"]))
    intent["spec"]["pools"] = {name: intent["spec"]["pools"][name] | changed}
    return intent


def faults(intent: dict[str, Any]) -> list[str]:
    return [".".join(map(str, one.absolute_path)) for one in Draft7Validator(SCHEMA).iter_errors(intent)]


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/intent.yaml")), ids=lambda path: path.parent.name)
def test_every_example_is_valid(path: Any) -> None:
    assert not faults(yaml.safe_load(path.read_text()))


def test_editor_schema_lists_all_card_ids_and_allows_custom_ones() -> None:
    assert SCHEMA["definitions"]["pool"]["properties"]["card"]["anyOf"][0]["enum"] == list(cards.ids())
    assert not faults(pool(card="my-card"))
    for wrong in ("Tesla T4", "A100-40GB", ""):
        assert faults(pool(card=wrong))


def test_editor_schema_lists_all_profiles_as_keys() -> None:
    names = {profile.name for card in map(cards.load, cards.ids()) for profile in (card.mig.profiles if card.mig else ())}
    places = [path for path, field in FIELDS.items() if "propertyNames" in field]
    assert {path[-1] for path in places} == {"layout", "replicas", "cap"}
    assert all(set(FIELDS[path]["propertyNames"]["anyOf"][0]["enum"]) == names for path in places)
    assert "1g.5gb" in names


@pytest.mark.parametrize(
    ("profile", "is_right"),
    [
        ("1g.5gb", True),
        ("1g.10gb+me", True),
        ("9g.999gb", True),
        ("1g5gb", False),
        ("1g.5GB", False),
        ("MIG 1g.5gb", False),
    ],
)
def test_editor_schema_accepts_catalogue_or_well_formed_profiles(profile: str, is_right: bool) -> None:
    assert (not faults(pool(sharing={"mode": "mig", "layout": {profile: 1}}))) == is_right
    assert (not faults(pool(memory={"cap": {profile: "2Gi"}}))) == is_right
