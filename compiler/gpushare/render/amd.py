"""AMD's stack: a DeviceConfig for each pool, the file of its config manager, and the values of its chart.

A DeviceConfig selects nodes by the label of their pool, so that no two select one node, which AMD's operator refuses. Its
programs tolerate our taints, because they make a node ready; only the config manager tolerates its own taint, which drives the
others away: device plugin and labeller read a node's partitions once, at their start (ROCm gpu-operator v1.5.1).
A changed profile of the config manager would divide labelled nodes at once: names are content-addressed, former ones stay.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.bundle.lock import Lock
from gpushare.facts.catalog import amd_charts
from gpushare.facts.catalog.amd_charts import CONFIG_MANAGER, OF_AMD, OF_SUBCHARTS
from gpushare.facts.catalog.image_registry import mirrored
from gpushare.facts.nodes.clouds import OUR_TAINTS
from gpushare.facts.vendors.amd import AMD, MANAGER_TAINT
from gpushare.intent.types import AmdStack, NvidiaStack, Platform
from gpushare.offering.backends import config_manager
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract.names import POOL_LABEL, VENDOR_LABEL

FOLDER = "chart/files/amd"
CONFIG = f"{FOLDER}/config.json"

CONFIG_MAP = "gpushare-dcm"
"""The ConfigMap with the config manager's file, in the namespace of AMD's stack."""

_LABELS = ["compute-memory-partition", "compute-partitioning-supported", "memory-partitioning-supported"]
"""What AMD's labeller writes beside its defaults."""

_DISCOVERY = (
    {"key": MANAGER_TAINT, "operator": "Equal", "value": "up", "effect": "NoExecute"},
    {"key": "amd-gpu-unhealthy", "operator": "Exists", "effect": "NoSchedule"},
)
"""What the workers of node feature discovery tolerate in AMD's chart."""

_PARTS = {
    AmdStack.GPU_OPERATOR: ("devicePlugin", "nodeLabeller", "metricsExporter", CONFIG_MANAGER, "initContainer"),
    AmdStack.DEVICE_PLUGIN: ("devicePlugin", "nodeLabeller"),
    AmdStack.EXISTING: (),
}
"""The parts whose images are in DeviceConfigs, or in the values of the device plugin."""

_SUBCHARTS = {
    AmdStack.GPU_OPERATOR: {"node-feature-discovery": True, "kmm": True, "remediation": True},
    AmdStack.DEVICE_PLUGIN: {"nfd": False},
    AmdStack.EXISTING: {},
}
"""The sections of a chart's values that enable a subchart, and whether they do by default."""


def stack(plan: Plan) -> dict[str, str]:
    """Return AMD's stack and its namespace, for the lock; empty without AMD's cards."""
    amd = plan.intent.platform.of_amd
    return {"namespace": amd.namespace, "stack": amd.stack.value} if plan.amd_pools else {}


def installs(plan: Plan) -> bool:
    """Whether the bundle installs a chart of AMD's."""
    return bool(plan.amd_pools) and not plan.intent.observes and plan.intent.platform.of_amd.stack is not AmdStack.EXISTING


def device_configs(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the specifications of the DeviceConfigs, each with its file, where AMD's operator serves the pools."""
    if plan.has_amd_operator:
        for pool in plan.amd_pools:
            yield f"{FOLDER}/device-configs/{pool.name}.yaml", _device_config(plan, pool)


def _device_config(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    platform = plan.intent.platform
    tolerations = _tolerations([pool])
    secrets = [{"name": name} for name in platform.image_pull_secrets]
    return {
        "selector": {POOL_LABEL: pool.name},
        "driver": {"enable": False},
        "commonConfig": {
            "initContainerImage": image(platform, "initContainer"),
            **({"imageRegistrySecrets": secrets} if secrets else {}),
        },
        "devicePlugin": {
            "enableDevicePlugin": True,
            "devicePluginImage": image(platform, "devicePlugin"),
            "devicePluginArguments": dict(pool.profile.config),
            "devicePluginTolerations": tolerations,
            "enableNodeLabeller": True,
            "nodeLabellerImage": image(platform, "nodeLabeller"),
            "nodeLabellerArguments": _LABELS,
            "nodeLabellerTolerations": tolerations,
        },
        "metricsExporter": {
            "enable": True,
            "image": image(platform, "metricsExporter"),
            "serviceType": "ClusterIP",
            "port": 5000,
            "tolerations": tolerations,
            **_monitor(plan.intent.monitoring),
        },
        "configManager": {
            "enable": pool.manager_config is not None,
            "image": image(platform, CONFIG_MANAGER),
            "config": {"name": CONFIG_MAP},
            "configManagerTolerations": tolerations,
        },
    }


def _monitor(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exporter's ServiceMonitor; empty without the Prometheus operator, whose kind it is."""
    if not wanted.get("serviceMonitor") or not wanted.get("operator", True):
        return {}
    labels = {"labels": dict(wanted["labels"])} if wanted.get("labels") else {}
    return {"prometheus": {"serviceMonitor": {"enable": True, **labels}}}


def _tolerations(served: list[PoolPlan]) -> list[dict[str, Any]]:
    """Return those of our taints and of the pools, each once."""
    wanted = [{"key": key, "operator": "Exists"} for key in OUR_TAINTS]
    wanted += [dict(toleration) for pool in served for toleration in pool.pool.tolerations]
    return [one for number, one in enumerate(wanted) if one not in wanted[:number]]


def config(plan: Plan, new_lock: Lock) -> str | None:
    """Return the text of the config manager's file; None if no node has the manager."""
    if plan.intent.observes or not any(pool.manager_config for pool in plan.pools):
        return None
    return json.dumps(config_manager.document(new_lock.manager_configs.every(), AMD.partitioner_stops), indent=2) + "\n"


def upstream_values(plan: Plan) -> dict[str, Any]:
    """Return the values of AMD's chart, the intent's own merged in; empty if the bundle installs none."""
    if not installs(plan):
        return {}
    platform = plan.intent.platform
    values = _operator(plan) if platform.of_amd.stack is AmdStack.GPU_OPERATOR else _plugin(plan)
    _merge(values, platform.of_amd.values)
    return values


def _merge(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(ours := values.get(key), dict) and isinstance(value, Mapping):
            _merge(ours, value)
        else:
            values[key] = value


def _operator(plan: Plan) -> dict[str, Any]:
    """Return the values of the operator: our DeviceConfigs and ConfigMap take the place of its own.

    Beside NVIDIA's chart, which brings node feature discovery, it installs none.
    """
    platform = plan.intent.platform
    is_alone = platform.stack is NvidiaStack.NONE
    discovery = {
        **({"imagePullSecrets": _secrets(platform)} if platform.image_pull_secrets else {}),
        "worker": {"tolerations": [*map(dict, _DISCOVERY), *_tolerations(list(plan.amd_pools))]},
    }
    return {
        "crds": {"defaultCR": {"install": False, "upgrade": False}},
        "defaultDCMConfigMap": {"install": False},
        "node-feature-discovery": {"enabled": is_alone, **(discovery if is_alone else {})},
        "installdefaultNFDRule": is_alone,
        **({"controllerManager": {"manager": {"image": _split(operator_image(platform))}}} if platform.registry else {}),
        **({"global": {"imagePullSecrets": _secrets(platform)}} if platform.image_pull_secrets else {}),
    }


def _plugin(plan: Plan) -> dict[str, Any]:
    """Return the values of the device plugin alone: it runs on nodes that the node runtime has labelled."""
    platform = plan.intent.platform
    plugin, labeller = ({"image": _split(image(platform, part))} for part in _PARTS[AmdStack.DEVICE_PLUGIN])
    return {
        "dp": plugin,
        "lbl": labeller,
        "imagePullSecrets": _secrets(platform),
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}, *_tolerations(list(plan.amd_pools))],
        "node_selector_enabled": True,
        "node_selector": {"feature.node.kubernetes.io/pci-0300_1002.present": None, VENDOR_LABEL: "amd"},
    }


def _split(reference: str) -> dict[str, str]:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def _secrets(platform: Platform) -> list[dict[str, str]]:
    return [{"name": name} for name in platform.image_pull_secrets]


def image(platform: Platform, part: str) -> str:
    """Return the image of a part, from the site's registry if there is one."""
    repository, _, tag = amd_charts.chart(platform.of_amd.stack.value).images[part].rpartition(":")
    return f"{mirrored(repository, platform.registry)}:{tag}"


def operator_image(platform: Platform) -> str:
    """Return the operator's image, which has the release of its chart as tag."""
    repository, _, tag = image(platform, "operator").rpartition(":")
    return f"{repository}:{platform.of_amd.version or tag}"


def images(plan: Plan) -> Iterator[str]:
    """Yield the lines of `images.txt` on AMD's chart."""
    if not installs(plan):
        return
    platform, values = plan.intent.platform, upstream_values(plan)
    stack, chart = platform.of_amd.stack, amd_charts.chart(platform.of_amd.stack.value)
    where = f"{chart.name} --repo {chart.repository} --version {platform.of_amd.version or chart.version}"
    yield f"{OF_AMD}: helm pull {where}"
    if stack is AmdStack.GPU_OPERATOR:
        ours, own = _split(operator_image(platform)), values.get("controllerManager", {}).get("manager", {}).get("image", {})
        yield f"{own.get('repository') or ours['repository']}:{own.get('tag') or ours['tag']}"
    has_labeller = stack is AmdStack.GPU_OPERATOR or values.get("labeller", {}).get("enabled", False)
    yield from (image(platform, part) for part in _PARTS[stack] if part != "nodeLabeller" or has_labeller)
    if any(values.get(part, {}).get("enabled", default) for part, default in _SUBCHARTS[stack].items()):
        yield f"{OF_SUBCHARTS}: helm show values {where}"
