"""Whatever `check` accepts installs: extreme values at random places, and those intents that pass render what a cluster takes.

Judges: the chart's own schema of values, Kubernetes' schemas, and `installable` for what stands in no schema.
"""

import copy
import json
import random
from functools import cache
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from gpushare import pipeline
from gpushare.core import resources
from gpushare.core.diagnostics import is_error
from gpushare.pipeline import Compilation
from gpushare_node.contract import policy
from tests.chart.conftest import run_helm  # noqa: F401 - a fixture
from tests.contract import installable
from tests.support import helm, rendering, scale

NEWEST = max(kubernetes_validate.utils.all_versions(), key=lambda version: [int(part) for part in version.split(".")])
VALUES = jsonschema.Draft7Validator(json.loads((resources.chart() / "values.schema.json").read_text()))

NUMBERS = [
    0,
    1,
    -1,
    2**31 - 1,
    2**31,
    -(2**31),
    10**6,
    10**6 + 1,
    10**12,
    10**12 + 1,
    2**53 - 1,
    2**53 + 1,
    2**63 - 1,
    10**30,
    1e300,
]
NAMES = [
    "a",
    "0",
    "1e3",
    "a" * 63,
    "a" * 64,
    "a.b",
    "a..b",
    "A",
    "Foo_Bar",
    "-a",
    "a-",
    "a_b",
    "",
    "no",
    "é",
    "a b",
    "a/b",
    "a\n",
]
KEYS = [*NAMES, "x.y/z", "x.y/" + "z" * 63, "x.y/" + "z" * 64, "x..y/z", "X/y", "/a", "a/b/c", ("a" * 60 + ".") * 4 + "a/b"]
THIRD = {"card": "t4", "nodes": {"matchLabels": {"z": "z"}}, "gpusPerNode": 1, "sharing": {"mode": "exclusive"}}
PLACES: dict[str, list[Any]] = {
    "/metadata/name": NAMES,
    "/spec/namespace": NAMES,
    "/spec/prices": [{"p": price} for price in ("0/h", "999999999.999999 EUR/h", "1e3/h", "1/h\n", 1)],
    "/spec/quotas": [{name: {"p": 3}} for name in NAMES],
    "/spec/quotas/atlas/p": [*NUMBERS, *({"memory": text} for text in ("1", "1Mi", "7Ei", "8Ei", "9223372036854775807"))],
    "/spec/quotas/atlas/m/1g.5gb": NUMBERS,
    "/spec/platform/registry": [
        *NAMES,
        "a.b:5000",
        "a:99999",
        "A.b/c",
        "a/b__c",
        "a/b..c",
        "a/b_.c",
        "a" * 200,
        "a//b",
        "a/b/",
    ],
    "/spec/platform/imagePullSecrets": [[name] for name in [*NAMES, "a" * 253, "a" * 254, ".a", "a."]],
    "/spec/platform/namespaces": [[name] for name in NAMES],
    "/spec/platform/driver": [{"repository": name} for name in [*NAMES, "a.b/c", "a/B"]] + [{"image": n} for n in NAMES],
    "/spec/platform/values": [
        *({"operator": {"runtimeClass": name}} for name in [*NAMES, "a" * 253, "a" * 254, 5, None]),
        *(
            {"hostPaths": {"kubeletRootDir": path}}
            for path in (
                "/a",
                "a",
                "/",
                "//",
                "/a//b",
                "/a/../b",
                "/a b",
                "/a/",
                "",
                "/{{ x }}",
            )
        ),
    ],
    "/spec/pools": [{name: THIRD} for name in [*NAMES, "a" * 48, "a" * 49, "release"]],
    "/spec/pools/p/nodes/matchLabels": [{key: "v"} for key in KEYS] + [{"k": name} for name in NAMES],
    "/spec/pools/p/nodes/matchExpressions": [
        *([{"key": key, "operator": "Exists"}] for key in KEYS),
        *([{"key": "k", "operator": "In", "values": [v]}] for v in NAMES),
        *([{"key": "k", "operator": "NotIn", "values": ["x", v]}] for v in NAMES),
    ],
    "/spec/pools/m/nodes": [{"names": [name]} for name in [*NAMES, "a" * 253, "a" * 254, "a.b.c"]],
    "/spec/pools/p/nodes/expected": NUMBERS,
    "/spec/pools/p/priority": NUMBERS,
    "/spec/pools/p/gpusPerNode": [1, 16, 17, 2**31],
    "/spec/pools/p/sharing/replicas": [2, 1024, 1025, 2**53],
    "/spec/pools/p/memory": [{"cap": cap} for cap in (1, "1Mi", "3Gi", "8Ei", 2**62)]
    + [{"cap": "14Gi", "oversubscribe": "9999%"}, {"reserve": "99.99%"}, {"reserve": "100%"}, {"reserve": 2**62}],
    "/spec/pools/p/enforcement": [
        *({"grace": text} for text in ("0s", "9223372036s", "9223372037s", "2562047h", "-1s")),
        *({"tolerance": one} for one in ("100%", "101%", 2**62, 10**30, "8Ei", 0)),
        {"notice": "2562047h"},
        {"notice": "0s"},
    ],
    "/spec/pools/p/rollout/maxUnavailable": [*NUMBERS, "1%", "100%", "101%", "0%", "007%", "1.5%", "99999999999%"],
    "/spec/pools/p/rollout/drainTimeout": ["0s", "9223372036s", "9223372037s", "1ns"],
    "/spec/pools/p/namespaces": [[name] for name in NAMES],
    "/spec/pools/p/tolerations": [
        *([{"key": key, "operator": "Exists"}] for key in KEYS),
        *([{"key": "k", "value": name}] for name in NAMES),
        [{}],
        [{"operator": "Exists"}],
        [{"key": "k", "operator": "Exists", "value": "v"}],
        [{"key": "k", "effect": "NoExecute"}],
        *([{"key": "k", "effect": "NoExecute", "tolerationSeconds": number}] for number in NUMBERS),
        [{"key": "k", "effect": "NoSchedule", "tolerationSeconds": 1}],
        [{"key": "k", "tolerationSeconds": 1}],
    ],
    "/spec/admission": [{"enforce": word} for word in ("deny", "warn", "audit", "none")] + [{"scope": "cluster"}],
    "/spec/kubernetes": ["1.30", "1.37", "1.999", "1.1000", "2.0"],
}
CHOICES = [(place, value) for place, values in PLACES.items() for value in values]


def base() -> dict[str, Any]:
    """Two pools, one of them with a quota in a map."""
    p = {
        "card": "t4",
        "nodes": {"matchLabels": {"a": "b"}, "expected": 3},
        "gpusPerNode": 4,
        "sharing": {"mode": "time-slicing", "replicas": 4},
        "rollout": {},
    }
    m = {
        "card": "a100-sxm4-40gb",
        "nodes": {"names": ["n1"]},
        "gpusPerNode": 2,
        "sharing": {"mode": "mig", "layout": {"1g.5gb": 7}},
    }
    spec = {"platform": {}, "pools": {"p": p, "m": m}, "quotas": {"atlas": {"p": 3, "m": {"1g.5gb": 2}}}}
    return {"apiVersion": "gpushare.dev/v1", "kind": "ClusterIntent", "metadata": {"name": "c"}, "spec": spec}


def changed(document: dict[str, Any], place: str, value: Any) -> None:
    *above, last = place.removeprefix("/").split("/")
    around: Any = document
    for step in above:
        around = around.setdefault(step, {}) if isinstance(around, dict) else {}
    if place in ("/spec/quotas", "/spec/pools"):
        around[last] = {**around[last], **copy.deepcopy(value)}
    else:
        around[last] = copy.deepcopy(value)


def compiled(changes: list[tuple[str, Any]]) -> Compilation:
    document = base()
    for place, value in changes:
        changed(document, place, value)
    return pipeline.check(json.dumps(document).encode(), "intent.yaml")


def is_accepted(compilation: Compilation) -> bool:
    return not any(map(is_error, compilation.findings))


@cache
def refused_by_schema(item: str) -> list[str]:
    """What Kubernetes' own schema refuses of an object; most objects of an intent are those of the one before."""
    try:
        kubernetes_validate.validate(json.loads(item), NEWEST, strict=True)
    except kubernetes_validate.ValidationError as refused:
        return [refused.message]
    return []


def refusals(compilation: Compilation, *, by_schema: bool = False) -> list[str]:
    """What the chart, a cluster or the node runtime would refuse of an intent that a check accepted."""
    files = {artifact.path: artifact.text for artifact in compilation.artifacts}
    values = yaml.safe_load(files["chart/values.yaml"])
    found = [error.message for error in VALUES.iter_errors(values)]
    for item in rendering.objects(files):
        found += list(installable.problems(item))
        if by_schema and item["kind"] in ("DaemonSet", "ResourceQuota"):
            found += refused_by_schema(json.dumps(item))
    for path, text in files.items():
        if path.startswith("chart/files/policies/"):
            policy.read(text)  # raises what the node runtime would refuse
    return found


@pytest.mark.parametrize("seed", scale.part(range(3), 3))
def test_combined_extreme_values_are_refused_by_check_or_install(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(25):
        changes = chance.sample(CHOICES, chance.choice((1, 2, 3)))
        compilation = compiled(changes)
        if is_accepted(compilation):
            accepted += 1
            assert refusals(compilation, by_schema=True) == [], changes
    assert accepted > 3


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("/spec/pools/p/rollout/maxUnavailable", 99999999999),
        ("/spec/quotas/atlas/p", 2**53 + 1),
        ("/spec/platform/values", {"operator": {"runtimeClass": "Foo_Bar"}}),
        ("/spec/pools/p/tolerations", [{"key": "k", "effect": "NoExecute", "tolerationSeconds": 2**63}]),
        ("/spec/platform/registry", "a..b"),
        ("/spec/platform/namespaces", ["Kube_System"]),
    ],
)
def test_values_refused_by_the_cluster_are_refused_by_check(place: str, value: Any) -> None:
    assert not is_accepted(compiled([(place, value)]))


def namespace_of(compilation: Compilation) -> str:
    """Where the bundle belongs: its chart refuses another place."""
    assert compilation.plan is not None
    return compilation.plan.intent.namespace


def test_helm_takes_all_extremes_that_a_check_accepts(run_helm: Any, tmp_path: Any) -> None:  # noqa: F811
    alone = [(place, value) for place, value in scale.some(CHOICES, 8) if is_accepted(compiled([(place, value)]))]
    left = dict.fromkeys(place for place, _ in alone)
    number = 0
    while alone:
        number += 1
        changes = [next(one for one in alone if one[0] == place) for place in left if any(one[0] == place for one in alone)]
        alone = [one for one in alone if one not in changes]
        compilation = compiled(changes)
        if not is_accepted(compilation):
            continue
        for artifact in compilation.artifacts:
            file = tmp_path / str(number) / artifact.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(artifact.text)
        for major in helm.MAJORS:
            run_helm(major, "template", "gpushare", tmp_path / str(number) / "chart", "--namespace", namespace_of(compilation))
    assert number > (5 if scale.is_long else 1)
