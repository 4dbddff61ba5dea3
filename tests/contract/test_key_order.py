"""An intent that says the same in another order of keys gives the same bytes."""

import random
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core import emit
from gpushare.core.diagnostics import is_error
from tests.compiler.golden.update import examples

HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: c}\nspec:\n"
RICH = (
    HEAD
    + """
  platform:
    values:
      toolkit: {env: [{name: A, value: b}, {name: C, value: d}]}
      operator: {nodeSelector: {a: b, c: d}, resources: {limits: {cpu: "1", memory: 1Gi}}}
      daemonsets: {labels: {x: "1", b: "2"}}
  quotas: {atlas: {m: {1g.5gb: 3, 2g.10gb: 1}, t: 4}, cms: {t: 2}}
  pools:
    t:
      card: t4
      nodes: {matchLabels: {b: "1", a: "2", c: "3"}, matchExpressions: [{key: z, operator: In, values: [q, p]}], expected: 2}
      gpusPerNode: 2
      sharing: {mode: time-slicing, replicas: 4}
      tolerations: [{key: k, operator: Equal, value: v, effect: NoExecute, tolerationSeconds: 5}, {key: a, operator: Exists}]
    m:
      card: a100-sxm4-40gb
      nodes: {names: [n2, n1], matchLabels: {w: "1", u: "2"}}
      gpusPerNode: 2
      sharing: {mode: mig, layout: {1g.5gb: 3, 2g.10gb: 2}, replicas: {2g.10gb: 2, 1g.5gb: 3}}
      memory: {cap: {2g.10gb: 2Gi, 1g.5gb: 1Gi}}
      enforcement: {grace: 20s, action: evict}
"""
)
INTENTS = {"rich": RICH} | {example.name: (example / "intent.yaml").read_text() for example in examples()}


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value, the keys of every mapping in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], chance) for key in chance.sample(list(value), len(value))}
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


def bundle(text: str) -> dict[str, str]:
    compilation = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
    assert not [finding.message for finding in compilation.findings if is_error(finding)]
    return {artifact.path: artifact.text for artifact in compilation.artifacts}


@pytest.mark.parametrize("name", INTENTS)
def test_key_order_does_not_change_the_bundle(name: str) -> None:
    chance, expected = random.Random(name), bundle(INTENTS[name])
    for _ in range(6 if name == "rich" else 1):
        again = bundle(emit.yaml_text(shuffled(yaml.safe_load(INTENTS[name]), chance)))
        assert [path for path in expected if again.get(path) != expected[path]] == []
        assert list(again) == list(expected)
