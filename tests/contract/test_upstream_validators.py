"""The judges of `upstream_validators` themselves: each refuses what its rule forbids, so that their yes means something."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract import upstream_validators as upstream
from tests.contract.upstream_validators import Hardware, RefusedError


def good_config() -> dict[str, Any]:
    resource = {"name": "nvidia.com/gpu", "replicas": 4}
    how = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": [resource]}
    return {"version": "v1", "flags": {"migStrategy": "none"}, "sharing": {"timeSlicing": how}}


def wrong_configs() -> Iterator[tuple[str, dict[str, Any]]]:
    def changed(*path: Any, value: Any) -> dict[str, Any]:
        config = good_config()
        place: Any = config
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return config

    resources = ("sharing", "timeSlicing", "resources")
    gpu = {"name": "nvidia.com/gpu", "replicas": 4}
    yield "version", changed("version", value="v2")
    yield "one replica", changed(*resources, 0, "replicas", value=1)
    yield "replicas as text", changed(*resources, 0, "replicas", value="4")
    yield "repeated", changed(*resources, value=[gpu, gpu | {"replicas": 8}])
    yield "none", changed(*resources, value=[])
    yield "plus sign", changed(*resources, 0, "name", value="nvidia.com/mig-1g.5gb+me")
    yield "ignored rename", changed(*resources, 0, "rename", value="mine")
    yield "both strategies", changed("sharing", "mps", value=good_config()["sharing"]["timeSlicing"])
    yield "empty map", changed("sharing", "timeSlicing", value={})
    yield "empty sharing", changed("sharing", value={})
    yield "ignored resources", changed("resources", value={"gpus": []})
    yield "unknown strategy", changed("flags", "migStrategy", value="double")
    yield "MPS without a root", changed("sharing", value={"mps": good_config()["sharing"]["timeSlicing"]})


@pytest.mark.parametrize(("name", "config"), list(wrong_configs()), ids=lambda value: value if isinstance(value, str) else "")
def test_plugin_config_validator_refuses_invalid_configs(name: str, config: dict[str, Any]) -> None:
    upstream.check_plugin_config(good_config())
    with pytest.raises(RefusedError):
        upstream.check_plugin_config(config)


@pytest.mark.parametrize(
    "entry",
    [
        "{devices: all, mig-enabled: true}",
        "{devices: all, mig-enabled: true, mig-devices: {}}",
        "{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}",
        "{devices: [], mig-enabled: false}",
        "{devices: [-1], mig-enabled: false}",
        "{devices: [0, 0], mig-enabled: false}",
        "{devices: [0], mig-enabled: false}",
        "{devices: [0, 1, 2], mig-enabled: false}",
        "{devices: all, mig-enabled: true, mig-devices: {1g.5gb.me: 1}}",
        "{devices: all, mig-enabled: true, mig-devices: {1c.1g.5gb: 1}}",
        "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}",
        "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 1g.5gb: 2}}",
        "{device-filter: A100, devices: all, mig-enabled: false}",
    ],
)
def test_mig_config_validator_refuses_failing_or_ineffective_entries(entry: str) -> None:
    text = "{version: v1, mig-configs: {all-disabled: [{devices: all, mig-enabled: false}], mig-x: [%s]}}"
    check(text % "{devices: [1, 0], mig-enabled: true, mig-devices: {1g.5gb: 6, 1g.5gb+me: 1}}")
    with pytest.raises(RefusedError):
        check(text % entry)


def check(text: str) -> None:
    """The file, and its config mig-x on a node with two GPUs."""
    document = upstream.read(text)
    upstream.check_mig_parted(document)
    upstream.partitioned(document["mig-configs"]["mig-x"], 2)


@pytest.mark.parametrize("key", ["1", "true", "null", "1e3", "no", "a.b", "A", "a-", "", "a" * 64])
def test_key_validator_refuses_invalid_profile_keys(key: str) -> None:
    upstream.check_key("time-slicing-1e345678-a")
    with pytest.raises(RefusedError):
        upstream.check_key(key)


@pytest.mark.parametrize(
    ("strategy", "node"),
    [
        ("none", [Counter({"1g.5gb": 7})]),
        ("single", [Counter({"1g.5gb": 7}), None]),
        ("single", [Counter({"1g.5gb": 7}), Counter({"2g.10gb": 3})]),
        ("mixed", [Counter()]),
    ],
)
def test_node_validator_refuses_layouts_on_which_the_plugin_exits(strategy: str, node: Hardware) -> None:
    config = {"version": "v1", "flags": {"migStrategy": "none"}}
    with pytest.raises(RefusedError):
        upstream.advertised(config, node, strategy, (8, 0))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mig", {"strategy": "both"}),
        ("migManager", {"enabled": "true"}),
        ("devicePlugin", {"config": {"name": "config"}}),
        ("devicePlugin", {"mps": {"root": "/run"}}),
        ("toolkit", {"env": [{"name": "A", "value": True}]}),
        ("daemonsets", {"tolerations": [{"key": "gpushare.dev/not-ready", "operator": "Exists"}]}),
        ("operator", {"imagePullSecrets": [{"name": "mirror"}]}),
        ("driver", {"version": 595.1}),
    ],
)
def test_values_validator_refuses_ignored_or_misread_values(path: str, value: dict[str, Any]) -> None:
    keys = ("nvidia.com/gpu", *upstream.OUR_TAINTS)
    operands = [{"key": key, "operator": "Exists"} for key in keys]
    control = {"key": "node-role.kubernetes.io/control-plane", "operator": "Equal", "value": "", "effect": "NoSchedule"}
    values: dict[str, Any] = {
        "devicePlugin": {"config": {"create": False, "name": "gpushare-profiles", "default": ""}},
        "daemonsets": {"tolerations": operands},
        "node-feature-discovery": {"worker": {"tolerations": [control, *operands]}},
    }
    upstream.check_values("gpu-operator", values)
    with pytest.raises(RefusedError):
        upstream.check_values("gpu-operator", values | {path: value})
