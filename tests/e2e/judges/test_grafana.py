"""Grafana's own types read the JSON of the dashboard."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.compiler.render.monitoring.test_dashboard import BOARD
from tests.e2e.judges import grafana


def test_grafanas_types_accept_the_dashboard() -> None:
    assert grafana.refusal(json.dumps(BOARD)) == ""


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "templating: required field is missing": lambda board: board.pop("templating"),
    "annotations: required field is missing": lambda board: board.pop("annotations"),
    "schemaVersion: json: cannot unmarshal string": lambda board: board.update(schemaVersion="39"),
    "unexpected field 'titel'": lambda board: board["panels"][0].update(titel="Shares"),
    "discriminator field 'type' not found": lambda board: board["panels"][0].pop("type"),
    "gridPos.w: must be <= 24": lambda board: board["panels"][0]["gridPos"].update(w=25),
    "expr: required field is missing": lambda board: board["panels"][0]["targets"][0].pop("expr"),
    "unexpected field 'legend'": lambda board: board["panels"][0]["targets"][0].update(legend="{{pool}}"),
    "unexpected field 'lineWidht'": lambda board: board["panels"][0]["fieldConfig"]["defaults"].update(custom={"lineWidht": 1}),
    "unexpected field 'include'": lambda board: board["templating"]["list"][1].update(include=True),
}


@pytest.mark.parametrize("complaint", DAMAGES)
def test_grafanas_types_refuse_a_damaged_dashboard(complaint: str) -> None:
    damaged = copy.deepcopy(BOARD)
    DAMAGES[complaint](damaged)
    assert complaint in grafana.refusal(json.dumps(damaged))
