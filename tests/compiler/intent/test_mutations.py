"""Intents changed at random: whatever comes of them, a check ends with located findings or with a whole bundle."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.core.diagnostics import is_error
from gpushare.reading import source
from gpushare.report.show import offer
from tests.compiler.intent.test_cards import MIG, X
from tests.compiler.intent.texts import intent, mig, pool
from tests.compiler.reading.texts import FULL
from tests.support import scale

ODD: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    16,
    48,
    49,
    1024,
    1025,
    2**62,
    -(2**63),
    2**63 - 1,
    1.0,
    2.0,
    1.5,
    -0.0,
    1e300,
    "",
    "a",
    "A",
    "none",
    "even",
    "all",
    "0",
    "1",
    "-1",
    "1Gi",
    "1e9",
    "3%",
    "100%",
    "0s",
    "1.5h",
    "mig",
    "mps",
    "exclusive",
    "time-slicing",
    "single",
    "t4",
    "l2",
    "p40",
    "b200-180gb",
    "thor-igpu",
    "a30",
    "rtx-pro-6000-server",
    "1g.5gb",
    "2g.10gb",
    "e\u0301",
    "\U0001f600",
    "x" * 300,
    "a\nb",
    "a\tb",
    "{{ .Values.x }}",
    "$(X)",
    "'\"`",
    "../../x",
    "nvidia.com/gpu",
    "latest",
    "most-instances",
    "balanced",
    "1.30",
    "device-plugin",
    "existing",
    "mig-manager",
    [],
    {},
    [1],
    ["a"],
    ["a", "a"],
    {"a": 1},
    {"1g.5gb": 2},
    {"memory": "1Gi"},
    {"instances": 3},
    {"": ""},
    [[]],
    [None],
    {"a": None},
    [{}],
]
KEYS = ("", "a", "memory", "nvidia.com/gpu", "1g.5gb", "3g.20gb", "1g.5gb+me", "\u00e9", "x" * 70, "A b", "release", "none")


def read(text: str) -> Any:
    return source.read(text.encode(), "intent.yaml").data


def seeds() -> list[Any]:
    full = read(FULL)
    full["spec"]["cards"] = {}
    own = mig("layout: {1g.5gb: 7}, replicas: {1g.5gb: 2}, placement: pack", card="mine", memory="{cap: {1g.5gb: 1Gi}}")
    return [
        full,
        read(intent(own, cards=json.dumps({"mine": X | {"mig": MIG}}), quotas="{a: {p: {1g.5gb: 3}}}")),
        read(intent(pool("{mode: mps, replicas: 8}", "l40s", tolerations="[{key: a, operator: Exists}]"))),
        read(intent(mig("layouts: [{gpus: [0, 1], layout: {1g.5gb: 7}}, {gpus: [2, 3], layout: none}], replicas: 2"))),
        read(intent(pool(memory="{cap: 2Gi, reserve: 3%}"), pool(name="r", nodes="{names: [n]}"), quotas="{a: {p: 3, r: 4}}")),
    ]


SEEDS = seeds()


def spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield (*path, step)
        yield from spots(item, (*path, step))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def mutate(chance: random.Random, document: Any) -> None:
    """One change somewhere: an odd value, nothing at all, another key, another part of the document, or a second copy."""
    places = list(spots(document))
    if not places:
        return
    *above, step = chance.choice(places)
    around = at(document, tuple(above))
    match chance.randrange(7):
        case 0 | 1 | 2:
            around[step] = copy.deepcopy(chance.choice(ODD))
        case 3:
            del around[step]
        case 4:
            around[step] = copy.deepcopy(at(document, chance.choice(places)))
        case 5 if isinstance(around, dict):
            around[chance.choice(KEYS)] = around.pop(step)
        case _ if isinstance(around, list):
            around.insert(step, copy.deepcopy(around[step]))
        case _:
            around[chance.choice(KEYS)] = copy.deepcopy(around[step])


@pytest.mark.parametrize("seed", scale.part(range(8), 4))
def test_mutated_intent_never_crashes_the_compiler(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        document = copy.deepcopy(chance.choice(SEEDS))
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            mutate(chance, document)
        text = json.dumps(document, ensure_ascii=False)
        result = pipeline.check(text.encode(), "intent.yaml")
        for finding in result.findings:
            assert finding.span, text
            assert finding.hints, (finding, text)
            assert "\n" not in finding.message, text
        if not any(map(is_error, result.findings)):
            assert result.plan, text
            assert result.artifacts, text
            json.dumps(offer(result.plan), allow_nan=False)
