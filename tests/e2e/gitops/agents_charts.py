"""Charts of the tests' device plugin and DRA driver, in place of NVIDIA's: they read the values that decide where pods run."""

import json
import re
from pathlib import Path

from gpushare.facts.catalog import upstream
from tests.e2e.cluster.dra.agents import CHARTS_AFFINITY, PLACEMENT, Agents
from tests.e2e.cluster.dra.devices import Object
from tests.e2e.gitops.upstream import Chart, add

_DEFAULTS: Object = {"affinity": CHARTS_AFFINITY, "nodeSelector": {}, "tolerations": []}
_READ = re.compile(r'"@([A-Za-z.]+)@"')
"""What stands for a value of the chart in its objects."""


def add_agents(agents: Agents, folder: Path) -> None:
    """Add both charts to the repository in the folder, each in the default version of the catalogue."""
    plugin = agents.plugin({key: f"@{key}@" for key in PLACEMENT})
    # As NVIDIA's: in the release's namespace.
    del plugin["metadata"]["namespace"]
    values = {
        "featureGates": {"ConsumableShares": True},
        "consumableShares": "@consumableShares@",
        "kubeletPlugin": {key: f"@kubeletPlugin.{key}@" for key in PLACEMENT},
    }
    defaults: Object = {"consumableShares": "", "kubeletPlugin": _DEFAULTS}
    add(folder, _chart("device-plugin", [plugin], _DEFAULTS), _chart(upstream.DRA, agents.driver(values), defaults))


def _chart(stack: str, objects: list[Object], values: Object) -> Chart:
    chart = upstream.chart(stack)
    text = "---\n".join(f"{json.dumps(item, indent=1)}\n" for item in objects)
    assert "{{" not in text
    return Chart(chart.name, [chart.version], _READ.sub(r"{{ .Values.\1 | toJson }}", text), values)
