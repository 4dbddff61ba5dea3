"""An intent as a document again: what is written is read as the same intent, for every field that the schema has."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core import emit
from gpushare.intent import reader, writer
from gpushare.intent.types import Intent
from gpushare.reading import schema, source
from tests.support import scale
from tests.support.paths import ROOT

SCHEMA = schema.load("intent.v1")
DEFINITIONS = SCHEMA["definitions"]
IGNORED = {("$schema",), ("apiVersion",), ("kind",), ("metadata", "labels"), ("metadata", "annotations")}
"""Fields that say nothing of the cluster."""
EXAMPLES = sorted((ROOT / "examples").glob("*/intent.yaml"))

HEAD = {"apiVersion": "gpushare.dev/v1", "kind": "ClusterIntent", "metadata": {"name": "c"}}
NODES = {"matchLabels": {"a": "b"}}


def pool(sharing: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"card": "a100-sxm4-40gb", "nodes": NODES, "gpusPerNode": 2, "sharing": sharing, **fields}


POOLS: dict[str, Any] = {
    "everything": pool(
        {"mode": "time-slicing", "replicas": 4, "rename": False, "placement": "pack", "interval": "short"},
        nodes={
            "matchLabels": {"a": "b", "c": ""},
            "matchExpressions": [{"key": "z", "operator": "In", "values": ["2", "1"]}, {"key": "y", "operator": "Exists"}],
            "names": ["n2", "n1"],
            "autoscaler": "karpenter",
        },
        priority=-3,
        memory={"cap": "3500Mi", "reserve": "2.5%", "oversubscribe": "150%"},
        enforcement={"action": "evict", "grace": "1m30s", "tolerance": "64Mi", "notice": "72h", "mechanism": "watcher"},
        rollout={
            "maxUnavailable": "10%",
            "onBusy": "evict",
            "drainTimeout": "2h",
            "paused": False,
            "windows": [{"days": ["Sun", "Sat"], "start": "22:00", "duration": "6h", "timezone": "Europe/Zurich"}],
        },
        require={"nvlink": False, "ecc": True, "memory": "39Gi"},
        namespaces=["cms", "atlas"],
        default=True,
        tolerations=[{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}],
        backend="dra",
        requests="both",
        sizes={"large": "7680Mi", "half": "1G"},
    ),
    "whole": pool({"mode": "exclusive"}, nodes={**NODES, "expected": 0}, backend="device-plugin"),
    "mps": pool({"mode": "mps", "replicas": 8}, enforcement={"tolerance": 0}, memory={"reserve": 0}),
    "alike": pool({"mode": "mig", "layout": {"2g.10gb": 1, "1g.5gb": 3}, "strategy": "single", "replicas": 2}),
    "undivided": pool({"mode": "mig", "layout": "none"}),
    "mixed": pool(
        {
            "mode": "mig",
            "layouts": [{"gpus": [1], "layout": {"1g.5gb": 7}}, {"gpus": [0], "layout": "none"}],
            "replicas": {"1g.5gb": 2},
        },
        memory={"cap": {"1g.5gb": "none"}},
    ),
    "most": pool({"mode": "mig", "goal": "most-instances"}),
    "balanced": pool({"mode": "mig", "goal": "balanced"}),
    "three": pool({"mode": "mig", "goal": {"instances": 3}}),
    "large": pool({"mode": "mig", "goal": {"memory": "10Gi"}}),
    "any": pool({"mode": "mig", "layout": "on-demand"}, backend="dra"),
    "some": pool({"mode": "mig", "layout": "on-demand", "profiles": ["3g.20gb", "1g.5gb"]}, backend="dra"),
    "parts": pool({"mode": "partition", "compute": "DPX", "memory": "NPS2", "strategy": "single"}),
    "unlike": pool(
        {
            "mode": "partition",
            "layouts": [{"gpus": [1, 0], "compute": "CPX"}, {"gpus": [2], "compute": "SPX"}],
            "memory": "NPS1",
        }
    ),
    "desktops": pool({"mode": "vgpu", "profile": "A10-12Q", "kernel": "5.15"}),
    "thin": pool({"mode": "vgpu", "profile": "A10-12Q"}),
}
PLATFORM: dict[str, Any] = {
    "stack": "device-plugin",
    "version": "0.20.0",
    "partitioner": "mig-manager",
    "driver": {"repository": "r/n", "image": "driver", "version": "595.91.07"},
    "vgpuManager": {"repository": "r/n", "image": "vgpu", "version": "595.71.03"},
    "registry": "registry.example.org",
    "charts": "oci://registry.example.org/charts",
    "image": {"repository": "r/n", "tag": "0.1.0", "digest": "sha256:1"},
    "runtimeClass": "nvidia",
    "imagePullSecrets": ["b", "a"],
    "namespace": "gpu-operator",
    "namespaces": ["monitoring", "logging"],
    "amd": {"stack": "existing", "version": "v1.5.1", "namespace": "amd", "values": {"a": 1}},
    "backend": "dra",
    "dra": {"via": "existing", "version": "0.5.0", "shares": "count", "driverRoot": "/run/nvidia/driver"},
    "values": {"dcgm": {"enabled": True, "args": None}},
}
SPEC: dict[str, Any] = {
    "kubernetes": "1.36",
    "namespace": "gpus",
    "platform": PLATFORM,
    "pools": POOLS,
    "rollout": {
        "maxUnavailable": 2,
        "onBusy": "fail",
        "drainTimeout": "45s",
        "paused": True,
        "windows": [{"days": ["Mon"], "start": "02:30", "duration": "1h30m", "timezone": "Asia/Tokyo"}],
    },
    "quotas": {"cms": {"whole": 8, "mps": {"shares": 0, "memory": "56Gi"}}, "atlas": {"mixed": {"1g.5gb": 4}, "whole": 0}},
    "admission": {"enforce": "warn", "scope": "cluster", "localhostProfiles": ["tenant-default"]},
    "adoption": "observe",
    "accept": {"GS404": "The GPU that is left whole is meant."},
    "prices": {"t4": "0.35 EUR/h", "whole": "2/h"},
    "monitoring": {
        "serviceMonitor": True,
        "dashboard": True,
        "alerts": True,
        "operator": False,
        "runbooks": "https://docs.example.org/",
        "labels": {"release": "kube-prometheus-stack"},
    },
    "gitops": {
        "argocd": {
            "repoURL": "https://git.example.org/gpu.git",
            "path": "clusters/c",
            "targetRevision": "main",
            "project": "gpus",
            "namespace": "argo",
            "server": "https://10.0.0.1",
            "name": "c-gpus",
        },
        "flux": {
            "url": "https://git.example.org/gpu.git",
            "path": "clusters/c",
            "branch": "prod",
            "namespace": "flux",
            "secret": "gpu-repository",
            "interval": "5m",
            "name": "c-gpus",
        },
    },
    "cards": {"mine": {"id": "mine", "facts": [1, 2.5, None]}},
}
WHOLE: dict[str, Any] = {**HEAD, "spec": SPEC}
SPECS: list[dict[str, Any]] = [
    SPEC,
    {"pools": {"a": POOLS["whole"]}},
    {"pools": {"a": POOLS["whole"]}, "platform": {"driver": {}, "amd": {}, "dra": {}}},
    {"pools": {"a": POOLS["parts"]}, "platform": {"stack": "amd-gpu-operator", "version": "v1.5.1", "values": {"b": [1]}}},
    {
        "pools": {"a": POOLS["parts"]},
        "platform": {"stack": "amd-device-plugin", "namespace": "amd", "registry": "r.io"},
    },
    {"pools": {"a": POOLS["parts"]}, "platform": {"stack": "existing", "version": "1", "namespace": "amd"}},
]


def built(document: Any) -> Intent:
    assert schema.violations(document, "intent.v1", ()) == []
    return reader.build(document)


def round_trip(one: Intent) -> Intent:
    """The intent from the text of its document, which a reader accepts as it was meant."""
    document = writer.write(one)
    read = source.read(emit.yaml_text(document).encode(), "intent.yaml")
    assert (read.findings, read.data) == ((), document)
    return built(read.data)


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_written_is_read_as_the_same_intent(spec: dict[str, Any]) -> None:
    one = built({**HEAD, "spec": spec})
    assert round_trip(one) == one
    ordered = writer.canonical(one)
    assert round_trip(ordered) == ordered == writer.canonical(ordered)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_bundles_of_an_intent_and_of_its_document_are_the_same(path: Path) -> None:
    """Also the findings: what is left out is what an intent has by default."""
    made = pipeline.compile_intent(path.read_bytes(), "intent.yaml", lock.EMPTY)
    written = next(one.text for one in made.artifacts if one.path == "intent.yaml")
    again = pipeline.compile_intent(written.encode(), "intent.yaml", lock.EMPTY)
    assert again.artifacts == made.artifacts
    assert [(one.code, one.message) for one in again.findings] == [(one.code, one.message) for one in made.findings]


def of(part: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a part of the schema; of texts with a pattern its examples."""
    if "$ref" in part:
        part = DEFINITIONS[part["$ref"].rpartition("/")[2]]
        return SHARING if part is DEFINITIONS["sharing"] else of(part)
    if "enum" in part:
        return st.sampled_from(part["enum"])
    kinds: Any = part.get("type") or ()
    values: list[st.SearchStrategy[Any]] = []
    if "object" in kinds:
        values.append(objects(part))
    if "array" in kinds:
        values.append(st.lists(of(part["items"]), min_size=part.get("minItems", 0), max_size=3, unique_by=repr))
    if "boolean" in kinds:
        values.append(st.booleans())
    if "integer" in kinds:
        least = part.get("minimum", 0)
        values.append(st.integers(least, min(part.get("maximum", 1 << 20), least + 1000)))
    if "pattern" in part:
        texts = [one for one in (*part.get("examples", ()), *WORDS) if isinstance(one, str) and schema.accepts(part, one)]
        values.append(st.sampled_from(texts))
    elif "string" in kinds:
        values.append(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=12))
    return st.one_of(values) if values else of({**DEFINITIONS["names"], **part["allOf"][0]})


def later(part: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: of(part))


def objects(part: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in part:
        return st.one_of([objects({**without(part, ("anyOf",)), **one}) for one in part["anyOf"]])
    known, required = part.get("properties", {}), part.get("required", ())
    named = {name: later(inner) for name, inner in known.items() if (name,) not in IGNORED}
    optional = {name: strategy for name, strategy in named.items() if name not in required}
    made = st.fixed_dictionaries({name: named[name] for name in required}, optional=optional)
    if isinstance(part.get("additionalProperties"), dict):
        more = st.dictionaries(NAMES, later(part["additionalProperties"]), max_size=2)
        made = st.one_of(made, more)
    return made.filter(lambda value: schema.accepts({**part, "definitions": DEFINITIONS}, value))


NAMES = st.sampled_from(["a", "b", "1g.5gb", "2g.10gb", "x-y", "no", "010"])
WORDS = ["even", "none", "3500Mi", "2G", "1", "3%", "2.5%", "0", "10s", "1h30m", "0s", "72h", "25%", "100%", "110%"]


@st.composite
def sharings(draw: st.DrawFn) -> dict[str, Any]:
    """One of the sections above, with other values and more fields as far as the schema allows them together."""
    made = dict(draw(st.sampled_from([one["sharing"] for one in POOLS.values()])))
    for name, part in DEFINITIONS["sharing"]["properties"].items():
        if name != "mode" and draw(st.booleans()):
            changed = {**made, name: draw(of(part))}
            made = changed if schema.accepts({**DEFINITIONS["sharing"], "definitions": DEFINITIONS}, changed) else made
    return made


SHARING = sharings()


@settings(max_examples=scale.examples(25), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_any_intent_is_written_as_it_is_read(data: st.DataObject) -> None:
    spec = data.draw(objects({**SCHEMA["properties"]["spec"], "required": []}).filter(lambda one: "cards" not in one))
    spec["pools"] = {"one": data.draw(of(DEFINITIONS["pool"])), **spec.get("pools", {})}
    one = built({**HEAD, "spec": spec})
    if one.kubernetes is not None:
        assert round_trip(one) == one
        assert round_trip(writer.canonical(one)) == writer.canonical(one)


def fields(part: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every field of the schema, with `*` for the keys and indexes that a user chooses."""
    part = DEFINITIONS[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    below = [(name, inner) for name, inner in part.get("properties", {}).items()]
    for every in ("additionalProperties", "items"):
        below += [("*", part[every])] if isinstance(part.get(every), dict) else []
    for name, inner in below:
        if name != "*":
            yield (*path, name)
        yield from fields(inner, (*path, name))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(inner, (*at, key))


def is_of(field: tuple[str, ...], place: tuple[Any, ...]) -> bool:
    return len(field) == len(place) and all(name in ("*", key) for name, key in zip(field, place, strict=True))


def without(document: Any, place: tuple[Any, ...]) -> Any:
    document = copy.deepcopy(document)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return document


FIELDS = list(dict.fromkeys(fields(SCHEMA)))


def test_every_field_is_in_the_documents() -> None:
    """A field that the schema gets must get into the documents above, and with that through the writer."""
    set_by = set(places({**HEAD, "spec": SPEC, "$schema": "x"}))
    assert [one for one in FIELDS if one not in IGNORED and not any(is_of(one, place) for place in set_by)] == []


def test_every_field_of_the_documents_says_something() -> None:
    """An intent with a field is another than without it: with a default in its place the round trip would prove nothing."""
    whole, places_of = built(WHOLE), list(places(WHOLE))
    for field in FIELDS:
        mute = []
        for place in (place for place in places_of if is_of(field, place)):
            document = without(WHOLE, place)
            is_another = schema.violations(document, "intent.v1", ()) != [] or reader.build(document) != whole
            mute.append(not is_another)
        assert field in IGNORED or not all(mute), field
