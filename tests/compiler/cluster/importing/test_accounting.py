"""Every field of every input counts: with another value, or without it, the intent or the findings are others."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from gpushare.cluster import importing
from gpushare.cluster.importing import InputFile, Wanted, accounting
from gpushare.core import emit
from gpushare.core.diagnostics import is_error
from tests.support import scale

CONFIG = """version: v1
flags:
  migStrategy: mixed
  failOnInitError: true
  plugin: {sharedDevicesAllocationPolicy: packed, deviceListStrategy: envvar}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
imex: {channelIDs: [0], required: true}
"""
MIG_CONFIG = """version: v1
mig-configs:
  train:
  - {devices: [0, 1], mig-enabled: true, mig-devices: {1g.5gb: 7}}
  - {devices: [2, 3], mig-enabled: true, mig-devices: {3g.20gb: 2}}
"""
OPERATOR: dict[str, Any] = {
    "operator": {"defaultRuntime": "containerd", "runtimeClass": "nvidia-x"},
    "daemonsets": {
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "x",
    },
    "driver": {
        "enabled": True,
        "version": "570.86.15",
        "repository": "r.example.org/n",
        "usePrecompiled": True,
        "rdma": {"enabled": True},
        "kernelModuleType": "open",
    },
    "toolkit": {"enabled": True, "env": [{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/c.sock"}], "installDir": "/x"},
    "devicePlugin": {
        "enabled": True,
        "config": {"name": "slicing", "default": "any"},
        "imagePullSecrets": ["pull"],
        "env": [{"name": "PASS_DEVICE_SPECS", "value": "true"}],
    },
    "dcgmExporter": {"enabled": True, "serviceMonitor": {"enabled": True}},
    "mig": {"strategy": "mixed"},
    "migManager": {
        "enabled": True,
        "config": {"name": "migs", "default": "all-disabled"},
        "env": [{"name": "WITH_REBOOT", "value": "true"}],
    },
    "cdi": {"enabled": True},
    "hostPaths": {"rootFS": "/", "driverInstallDir": "/home/nvidia"},
    "unheardOf": {"deep": [1, {"a": "b"}]},
}
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slicing", "namespace": "gpu-operator"},
    "data": {"any": CONFIG},
}
MIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "migs", "namespace": "gpu-operator"},
    "data": {"config.yaml": MIG_CONFIG},
}
T4 = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "a",
        "labels": {
            "nvidia.com/gpu.product": "Tesla-T4",
            "nvidia.com/gpu.count": "2",
            "nvidia.com/gpu.memory": "15360",
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
            "nvidia.com/gpu.replicas": "4",
            "nvidia.com/gpu.from.a.later.release": "1",
        },
    },
    "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], "somethingNew": "x"},
    "status": {"capacity": {"nvidia.com/gpu.shared": "8"}},
}
A100 = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "b",
        "labels": {
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
            "nvidia.com/gpu.count": "4",
            "nvidia.com/mig.config": "train",
            "nvidia.com/mig.config.state": "success",
            "nvidia.com/mig.strategy": "mixed",
        },
    },
    "status": {"capacity": {"nvidia.com/mig-1g.5gb": "14", "nvidia.com/mig-3g.20gb": "4"}},
}
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q", "namespace": "atlas"},
    "spec": {"hard": {"requests.nvidia.com/gpu.shared": "5", "limits.nvidia.com/gpu.shared": "5"}},
}
SCOPED = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "p", "namespace": "cms"},
    "spec": {"hard": {"requests.nvidia.com/gpu.shared": "5"}, "scopes": ["NotTerminating"]},
}
NODES = [CONFIG_MAP, MIG_MAP, T4, A100]
PLUGIN = {
    "config": {"map": {"any": CONFIG.replace("migStrategy: mixed", "migStrategy: none")}, "default": "any"},
    "runtimeClassName": "nvidia",
    "deviceListStrategy": "cdi-cri",
    "gfd": {"enabled": True},
    "nvidiaDriverRoot": "/r",
    "image": {"repository": "r.example.org/p", "tag": "v0.17.1"},
    "imagePullSecrets": [{"name": "pull"}],
}
CLUSTERS: dict[str, list[Any]] = {
    "values": [OPERATOR, *NODES, QUOTA, SCOPED],
    "policy": [{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": OPERATOR}, *NODES],
    "flux": [
        {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": "o", "namespace": "flux"},
            "spec": {
                "targetNamespace": "gpu",
                "chart": {"spec": {"chart": "gpu-operator", "version": "v25.3.4"}},
                "valuesFrom": [{"kind": "Secret", "name": "s"}],
                "values": OPERATOR,
                "later": {"field": 1},
            },
        },
        *NODES,
    ],
    "argo": [
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "o", "namespace": "argocd"},
            "spec": {
                "destination": {"namespace": "gpu"},
                "source": {
                    "chart": "gpu-operator",
                    "targetRevision": "v25.3.4",
                    "helm": {"valuesObject": OPERATOR, "parameters": [{"name": "a", "value": "b"}]},
                },
            },
        },
        *NODES,
    ],
    "plugin": [PLUGIN, {**T4, "metadata": {"name": "a", "labels": T4["metadata"]["labels"]}}],  # type: ignore[index]
}
SAME = {"metadata/name", "metadata/namespace", "kind", "apiVersion"}
"""What an object is: with another of these it is not the object any more, or only comments are others."""


def result(documents: list[Any], stack: str) -> tuple[str, tuple[tuple[str, str, tuple[str, ...]], ...]]:
    data = "---\n".join(emit.yaml_text(one, "") for one in documents)
    found = importing.build([InputFile(name="all.yaml", data=data.encode())], "x", Wanted(stack=stack))
    return found.text, tuple(sorted((one.code, one.message, one.hints) for one in found.findings))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    match value:
        case dict():
            for key, entry in value.items():
                yield from leaves(entry, (*path, key))
        case list():
            for number, entry in enumerate(value):
                yield from leaves(entry, (*path, number))
        case _:
            yield path


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value * 2 + 1
        case str() if value.isdigit():
            return str(int(value) * 2 + 1)
    return f"{value}x"


def changed(documents: list[Any], number: int, path: tuple[Any, ...], *, remove: bool) -> list[Any]:
    edited = copy.deepcopy(documents)
    place = edited[number]
    for step in path[:-1]:
        place = place[step]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = other(place[path[-1]])
    return edited


@pytest.mark.parametrize("stack", ["", "gpu-operator"])
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_changed_field_changes_the_intent_or_the_findings(cluster: str, stack: str) -> None:
    documents = CLUSTERS[cluster]
    before = result(documents, stack)
    silent = []
    for number, document in enumerate(documents):
        if number and cluster != "values":
            break  # the other objects are the same in each cluster
        for path in leaves(document):
            if "/".join(map(str, path)) in SAME:
                continue
            if result(changed(documents, number, path, remove=False), stack) == before:
                silent.append((number, path))
    assert not silent


REDUNDANT = {
    "metadata/labels/nvidia.com/gpu.count": "capacity and replicas say the same number",
    "metadata/labels/nvidia.com/gpu.memory": "the product is of one card, which has that memory",
    "status/capacity/nvidia.com/gpu.shared": "count and replicas say the same number",
    "metadata/labels/nvidia.com/mig.config.state": "without a state the config counts as applied",
    "driver/enabled": "true is the chart's default",
}
"""What may be absent, since something else says the same: ends of paths, each with the reason."""


@pytest.mark.parametrize("stack", ["", "gpu-operator"])
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_removed_field_changes_the_intent_or_the_findings(cluster: str, stack: str) -> None:
    documents = CLUSTERS[cluster]
    before = result(documents, stack)
    silent = set()
    for number, document in enumerate(documents):
        if number and cluster != "values":
            break  # the other objects are the same in each cluster
        for path in scale.some([one for one in leaves(document) if "/".join(map(str, one)) not in SAME], 12):
            if result(changed(documents, number, path, remove=True), stack) == before:
                silent.add("/".join(map(str, path)))
    assert not {path for path in silent if not path.endswith(tuple(REDUNDANT))}


@pytest.mark.parametrize("end", REDUNDANT)
def test_redundant_field_changes_nothing(end: str) -> None:
    documents = CLUSTERS["values"]
    before = result(documents, "gpu-operator")
    number, path = next(
        (number, path)
        for number, document in enumerate(documents)
        for path in leaves(document)
        if "/".join(map(str, path)).endswith(end)
    )
    assert result(changed(documents, number, path, remove=True), "gpu-operator") == before


def inner(text: str) -> Iterator[tuple[str, str]]:
    """Yield the text with one value changed, for each line that has a scalar."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        key, colon, value = line.partition(": ")
        if colon and not value.startswith(("{", "[")) and key.strip() != "version":
            new = {"true": "false", "false": "true"}.get(value, f"{value}x")
            yield key.strip(), "\n".join([*lines[:number], f"{key}: {new}", *lines[number + 1 :]])


@pytest.mark.parametrize(("place", "text"), [(1, CONFIG), (2, MIG_CONFIG)])
def test_changed_config_value_changes_the_intent_or_the_findings(place: int, text: str) -> None:
    documents = CLUSTERS["values"]
    before = result(documents, "")
    for key, edited in inner(text):
        again = copy.deepcopy(documents)
        again[place]["data"] = dict.fromkeys(again[place]["data"], edited)
        assert result(again, "") != before, key


def test_a_field_that_no_reader_knows_is_listed_with_its_value_and_fails_strict() -> None:
    node = copy.deepcopy(T4)
    data = emit.yaml_text(node, "").encode()
    found = importing.build([InputFile(name="node.yaml", data=data)], "x")
    (lost,) = [one for one in found.findings if one.code == "GS871"]
    assert 'nvidia.com/gpu.from.a.later.release]: "1"' in lost.message
    assert 'spec.somethingNew: "x"' in lost.message
    assert lost.span
    assert not is_error(lost)


def test_each_ignored_field_has_a_reason() -> None:
    assert all(reason for _, _, reason in accounting.MEANINGLESS)
