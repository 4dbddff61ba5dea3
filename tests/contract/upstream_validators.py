"""NVIDIA's programs as strict judges: k8s-device-plugin 0.20, config-manager, mig-parted 0.15 and the charts' values.

A second reading of their formats, on purpose sharing no code and no table with the compiler. The programs themselves let much
pass in silence; whatever they would ignore, coerce or fail on late is an error here. `advertised` and `partitioned` say what a
node would become.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import yaml

GPU = "nvidia.com/gpu"
PROFILE = re.compile(r"[1-9][0-9]*g\.[0-9]+gb(?:[+-][a-z][a-z0-9]*(?:\.[a-z0-9]+)*)?")
KEY = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

Hardware = list[Counter[str] | None]
"""One node: per GPU the instances by profile, None for a GPU without MIG."""


class RefusedError(Exception):
    """The program exits, or does in silence something other than what the config says."""


class _Strict(yaml.CSafeLoader):
    """YAML 1.1 as Go's old readers have it, but without repeated keys and with text keys only."""


def _mapping(loader: _Strict, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        _need(isinstance(key, str), f"key {key!r} is no text")
        _need(key not in found, f"key {key} is given twice")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Strict.add_constructor("tag:yaml.org,2002:map", _mapping)


@cache
def read(text: str) -> Any:
    """One YAML document; equal texts are one value, so leave it as it is."""
    return yaml.load(text, _Strict)


def _need(holds: bool, reason: str) -> None:
    if not holds:
        raise RefusedError(reason)


def _closed(value: Any, where: str, required: Iterable[str], optional: Iterable[str] = ()) -> None:
    _need(isinstance(value, dict) and bool(value), f"{where} is no filled mapping")
    required, known = set(required), {*required, *optional}
    _need(required <= set(value) <= known, f"{where} has {sorted(value)}, known {sorted(known)}, needed {sorted(required)}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# Names.


def check_key(key: str) -> None:
    """A key of the plugin's or mig-manager's configs: ConfigMap key, label value, and unquoted in the standalone chart."""
    _need(bool(KEY.fullmatch(key)) and key not in WORDS and len(key) <= 63, f"{key!r} is no safe name of a config")
    _need(isinstance(yaml.safe_load(key), str), f"{key!r} does not read as text without quotes")


def _check_resource(name: Any) -> None:
    _need(isinstance(name, str) and name.startswith("nvidia.com/"), f"resource {name!r} has another prefix")
    short = name.removeprefix("nvidia.com/")
    _need(bool(re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", short)), f"{name} is no DNS subdomain")
    _need(all(part and part[0] != "-" != part[-1] for part in short.split(".")), f"{name} is no DNS subdomain")
    _need(len(name) <= 56, f"{name} leaves no room for .shared")


# The device plugin.

_STRATEGIES = ("none", "single", "mixed")


def check_plugin_config(config: Any, env_strategy: str = "") -> None:
    """A device-plugin config v1 as a whole; `env_strategy` is MIG_STRATEGY of the plugin's environment, which wins."""
    _closed(config, "config", ["version", "flags"], ["sharing"])
    _need(config["version"] == "v1", "unknown version")
    flags = config["flags"]
    _closed(flags, "flags", ["migStrategy"], ["mpsRoot", "plugin"])
    _need(flags["migStrategy"] in _STRATEGIES, "unknown MIG strategy")
    if "plugin" in flags:
        _closed(flags["plugin"], "flags.plugin", ["sharedDevicesAllocationPolicy"])
        _need(flags["plugin"]["sharedDevicesAllocationPolicy"] in ("distributed", "packed"), "unknown policy")
    if "sharing" not in config:
        _need("mpsRoot" not in flags, "mpsRoot without MPS")
        return
    sharing = config["sharing"]
    _closed(sharing, "sharing", [], ["timeSlicing", "mps"])
    _need(len(sharing) == 1, "MPS silently wins over time-slicing")
    for how in sharing.values():
        _check_replicated(how)
    if "mps" in sharing:
        _need((env_strategy or flags["migStrategy"]) != "mixed", "using --mig-strategy=mixed is not supported with MPS")
        _need(str(flags.get("mpsRoot", "")).startswith("/"), "using MPS requires --mps-root")


def _check_replicated(how: Any) -> None:
    _closed(how, "sharing.*", ["renameByDefault", "failRequestsGreaterThanOne", "resources"])
    _need(isinstance(how["renameByDefault"], bool), "renameByDefault is no bool")
    _need(how["failRequestsGreaterThanOne"] is True, "a container could take several shares and get one GPU")
    _need(isinstance(how["resources"], list) and bool(how["resources"]), "no resources specified")
    for entry in how["resources"]:
        _closed(entry, "resource", ["name", "replicas"])
        _check_resource(entry["name"])
        _need(_whole(entry["replicas"]) and entry["replicas"] >= 2, "number of replicas must be >= 2")
    names = [entry["name"] for entry in how["resources"]]
    _need(len(names) == len(set(names)), "a resource is listed twice; the larger number silently wins")


def advertised(config: Any, node: Hardware, env_strategy: str, capability: tuple[int, int]) -> dict[str, int]:
    """What a node's `allocatable` shows: resource → number. RefusedError where plugin, GFD or the MPS daemon would exit."""
    check_plugin_config(config, env_strategy)
    sharing = config.get("sharing", {})
    if "mps" in sharing:
        _need(all(gpu is None for gpu in node), "sharing using MPS is not supported for MIG devices")
        most = 48 if capability >= (7, 5) else 16
        _need(all(one["replicas"] <= most for one in sharing["mps"]["resources"]), "maximum allowed replicas exceeded")
    counts = _devices(env_strategy or config["flags"]["migStrategy"], node)
    for how in sharing.values():
        for entry in how["resources"]:
            _need(entry["name"] in counts, f"{entry['name']} is not on the node: silently exclusive")
            number = counts.pop(entry["name"]) * entry["replicas"]
            counts[entry["name"] + (".shared" if how["renameByDefault"] else "")] = number
    return dict(counts)


def _devices(strategy: str, node: Hardware) -> Counter[str]:
    divided = [gpu for gpu in node if gpu is not None]
    _need(all(divided), "a GPU in MIG mode without instances")
    if strategy == "none":
        _need(not divided, "a GPU in MIG mode would be offered whole")
    if strategy == "single" and divided:
        _need(len(divided) == len(node), "all devices on the node must be configured with the same migEnabled value")
        _need(all(gpu == divided[0] and len(gpu) == 1 for gpu in divided), "more than one MIG device type present on node")
        return Counter({GPU: sum(gpu.total() for gpu in divided)})
    counts = Counter({GPU: len(node) - len(divided)})
    for gpu in divided:
        counts.update({f"nvidia.com/mig-{profile.replace('+', '.')}": number for profile, number in gpu.items()})
    return +counts


# mig-parted.


def check_mig_parted(document: Any) -> None:
    """A mig-parted config file that gpu-operator's mig-manager reads."""
    _closed(document, "file", ["version", "mig-configs"])
    _need(document["version"] == "v1", "unknown version")
    configs = document["mig-configs"]
    _need(isinstance(configs, dict) and "all-disabled" in configs, "unlabelled nodes would fail without all-disabled")
    for name, entries in configs.items():
        check_key(name)
        _need(isinstance(entries, list) and bool(entries), f"{name} is empty")
        for entry in entries:
            _check_entry(entry)
    disabled = configs["all-disabled"]
    _need(disabled == [{"devices": "all", "mig-enabled": False}], "all-disabled means something else")


def _check_entry(entry: Any) -> None:
    _closed(entry, "entry", ["devices", "mig-enabled"], ["mig-devices"])
    devices, wanted = entry["devices"], entry.get("mig-devices")
    indexes = isinstance(devices, list) and bool(devices) and all(_whole(one) and one >= 0 for one in devices)
    _need(devices == "all" or indexes, f"devices {devices!r}")
    _need(isinstance(entry["mig-enabled"], bool), "mig-enabled is no bool")
    _need(entry["mig-enabled"] == bool(wanted), "mig-devices exactly where MIG is enabled")
    for profile, count in (wanted or {}).items():
        _need(bool(PROFILE.fullmatch(profile)), f"profile {profile!r}")
        _need(_whole(count) and count > 0, f"{count!r} of {profile} never counts as already applied")


def partitioned(entries: Iterable[Any], gpus: int) -> Hardware:
    """What mig-manager makes of a node: every GPU must be covered exactly once."""
    node: dict[int, Counter[str] | None] = {}
    for entry in entries:
        for index in range(gpus) if entry["devices"] == "all" else entry["devices"]:
            _need(index < gpus, f"there is no GPU {index}")
            _need(index not in node, f"GPU {index} is covered twice")
            node[index] = Counter(entry["mig-devices"]) if entry["mig-enabled"] else None
    _need(len(node) == gpus, "an uncovered GPU is never already applied")
    return [node[index] for index in range(gpus)]


# Values of the charts.

_NAMES, _SECRETS, _TOLERATIONS, _ENV = "names", "secrets", "tolerations", "env"

_OPERANDS = (
    *("operator", "validator", "driver", "toolkit", "devicePlugin", "gfd", "dcgm", "dcgmExporter", "migManager", "gds"),
    *("gdrcopy", "nodeStatusExporter", "vgpuManager", "vgpuDeviceManager", "vfioManager", "sandboxDevicePlugin"),
    *("kataSandboxDevicePlugin", "ccManager", "draDriver"),
)
_OPERATOR: dict[str, Any] = {
    "mig.strategy": ("none", "single", "mixed", ""),
    "devicePlugin.config.create": (False,),
    "devicePlugin.config.name": ("gpushare-profiles",),
    "devicePlugin.config.default": ("",),
    "devicePlugin.env": _ENV,
    "migManager.enabled": (True, False),
    "migManager.config.create": (False,),
    "migManager.config.name": ("gpushare-mig-parted",),
    "migManager.config.default": ("all-disabled",),
    "driver.enabled": (True, False),
    "driver.image": str,
    "driver.version": str,
    "toolkit.env": _ENV,
    "dcgmExporter.env": _ENV,
    "dcgmExporter.hostPID": (True,),
    "dcgmExporter.config.create": (True,),
    "dcgmExporter.config.name": ("gpushare-dcgm-metrics",),
    "dcgmExporter.config.data": str,
    "daemonsets.tolerations": _TOLERATIONS,
    "node-feature-discovery.worker.tolerations": _TOLERATIONS,
    "node-feature-discovery.image.repository": str,
    "node-feature-discovery.imagePullSecrets": _SECRETS,
    "driver.manager.repository": str,
    "vfioManager.driverManager.repository": str,
    "vgpuManager.driverManager.repository": str,
    **{f"{operand}.repository": str for operand in _OPERANDS},
    **{f"{operand}.imagePullSecrets": _NAMES for operand in _OPERANDS},
}
_PLUGIN: dict[str, Any] = {
    "config.name": ("gpushare-profiles",),
    "config.default": ("",),
    "config.fallbackStrategies": (["empty"],),
    "gfd.enabled": (True,),
    "tolerations": _TOLERATIONS,
    "nfd.worker.tolerations": _TOLERATIONS,
    "image.repository": str,
    "nfd.image.repository": str,
    "imagePullSecrets": _SECRETS,
    "nfd.imagePullSecrets": _SECRETS,
}
_VOLUMES = (
    *("config", "device-plugin", "nvidia-device-plugin-entrypoint", "run-nvidia-validations", "run-nvidia"),
    *("driver-install-dir", "host-root", "cdi-root", "mps-root", "mps-shm", "output-dir", "host-sys"),
)
UPSTREAM_TOLERATIONS = {
    "daemonsets.tolerations": ["nvidia.com/gpu"],
    "node-feature-discovery.worker.tolerations": ["node-role.kubernetes.io/control-plane", "nvidia.com/gpu"],
    "tolerations": ["CriticalAddonsOnly", "nvidia.com/gpu"],
    "nfd.worker.tolerations": ["node-role.kubernetes.io/master", "nvidia.com/gpu"],
}


def check_values(stack: str, values: Any) -> None:
    """Values that the compiler wrote on its own: no path but these, each with a value that means something there."""
    known = _OPERATOR if stack == "gpu-operator" else _PLUGIN
    given = dict(_leaves(values, ()))
    for path, value in given.items():
        _need(path in known, f"{path} is no value of ours")
        _check_value(path, value, known[path])
    missing = {path for path in UPSTREAM_TOLERATIONS if path in known} - set(given)
    _need(not missing, f"{missing} is missing")
    name = given["devicePlugin.config.name" if stack == "gpu-operator" else "config.name"]
    check_key(name)  # the operator names a volume after it
    _need(name not in _VOLUMES, f"{name} is the name of another volume")


def check_restoring_values(stack: str, values: Any) -> None:
    """Values with which the chart needs nothing of gpushare, and still serves the pools' nodes."""
    known = _OPERATOR if stack == "gpu-operator" else _PLUGIN
    given = dict(_leaves(values, ()))
    for path, value in given.items():
        _need(path in known, f"{path} is no value of ours")
        _need("gpushare" not in str(value), f"{path} names gpushare: {value}")
        keys = [entry.get("key") for entry in value] if known[path] is _TOLERATIONS else None
        if keys is None:
            _check_value(path, value, known[path])
        else:
            upstream = UPSTREAM_TOLERATIONS[path]
            _need(keys[: len(upstream)] == upstream, f"{path} has {keys}")
    _need(given.get("migManager.config.name") is given.get("devicePlugin.config.name") is None, "a ConfigMap is named")
    if stack == "gpu-operator":
        _need("driver.enabled" in given, "the operator would install a driver over the nodes'")
    else:
        _need(given["gfd.enabled"], "no NFD labels nodes, and the plugin's pods select its labels")


def _leaves(value: Any, above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _leaves(below, (*above, key))
    else:
        yield ".".join(above), value


def _check_value(path: str, value: Any, wanted: Any) -> None:
    if wanted is str:
        _need(isinstance(value, str) and bool(value), f"{path} is {value!r}")
    elif isinstance(wanted, tuple):
        _need(any(value == one and type(value) is type(one) for one in wanted), f"{path} is {value!r}")
    else:
        _need(isinstance(value, list) and bool(value), f"{path} is no filled list")
        for entry in value:
            _CHECKS[wanted](entry)
    if wanted is _TOLERATIONS:
        keys = [entry.get("key") for entry in value]
        upstream = UPSTREAM_TOLERATIONS[path]
        _need(keys[: len(upstream) + len(OUR_TAINTS)] == [*upstream, *OUR_TAINTS], f"{path} has {keys}")


OUR_TAINTS = (
    "gpushare.dev/not-ready",
    "gpushare.dev/repartitioning",
    "startup-taint.cluster-autoscaler.kubernetes.io/gpushare-not-ready",
    "status-taint.cluster-autoscaler.kubernetes.io/gpushare-repartitioning",
)


def _check_secret(entry: Any) -> None:
    _closed(entry, "pull secret", ["name"])
    _check_name(entry["name"])


def _check_name(entry: Any) -> None:
    _need(isinstance(entry, str) and bool(entry), f"{entry!r} is no name")


def _check_variable(entry: Any) -> None:
    _closed(entry, "variable", ["name", "value"])
    _need(isinstance(entry["value"], str), f"{entry['name']} is no text")


def _check_toleration(entry: Any) -> None:
    _closed(entry, "toleration", [], ["key", "operator", "value", "effect", "tolerationSeconds"])
    _need(entry.get("effect") in (None, "NoSchedule", "PreferNoSchedule", "NoExecute"), f"effect of {entry}")
    _need(entry.get("operator", "Equal") == "Equal" or not entry.get("value"), f"a value in {entry}")


_CHECKS: Mapping[str, Any] = {
    _NAMES: _check_name,
    _SECRETS: _check_secret,
    _ENV: _check_variable,
    _TOLERATIONS: _check_toleration,
}
