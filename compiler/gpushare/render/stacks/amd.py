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
from gpushare.core.wording import join_words
from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.image_registry import mirrored
from gpushare.facts.catalog.upstream import HEADINGS, OF_SUBCHARTS
from gpushare.intent.stacks import VendorStack
from gpushare.intent.types import NvidiaStack, Platform
from gpushare.offering.partitioners import config_manager
from gpushare.render.stacks.stack import Document, Stack
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.vendors.amd import AMD, CONFIG_MANAGER, MANAGER_TAINT, OBJECTS
from gpushare_node.contract import vendors as contract
from gpushare_node.contract.names import OUR_TAINTS, POOL_LABEL, VENDOR_LABEL

_CONFIG = f"{OBJECTS.folder}{OBJECTS.file}"

_LABELS = ["compute-memory-partition", "compute-partitioning-supported", "memory-partitioning-supported"]
"""What AMD's labeller writes beside its defaults."""

_DISCOVERY = (
    {"key": MANAGER_TAINT, "operator": "Equal", "value": "up", "effect": "NoExecute"},
    {"key": "amd-gpu-unhealthy", "operator": "Exists", "effect": "NoSchedule"},
)
"""What the workers of node feature discovery tolerate in AMD's chart."""

_PARTS: Mapping[str, tuple[str, ...]] = {
    contract.Stack.AMD_GPU_OPERATOR: ("devicePlugin", "nodeLabeller", "metricsExporter", CONFIG_MANAGER, "initContainer"),
    contract.Stack.AMD_DEVICE_PLUGIN: ("devicePlugin", "nodeLabeller"),
    contract.Stack.EXISTING: (),
}
"""The parts whose images are in DeviceConfigs, or in the values of the device plugin."""

_SUBCHARTS: Mapping[str, Mapping[str, bool]] = {
    contract.Stack.AMD_GPU_OPERATOR: {"node-feature-discovery": True, "kmm": True, "remediation": True},
    contract.Stack.AMD_DEVICE_PLUGIN: {"nfd": False},
    contract.Stack.EXISTING: {},
}
"""The sections of a chart's values that enable a subchart, and whether they do by default."""

_DISCOVERED = "feature.node.kubernetes.io/amd-gpu=true"


class AmdPrograms(Stack):
    """AMD's chart: its operator, or its device plugin alone."""

    title = "AMD's chart"
    is_first = True

    def chart_files(self, plan: Plan, new_lock: Lock) -> Iterator[tuple[str, Document | str]]:
        """Yield the specifications of the DeviceConfigs where AMD's operator serves pools, and its config manager's file."""
        if _has_operator(plan):
            for pool in _pools(plan):
                yield f"{OBJECTS.specs}{pool.name}.yaml", _device_config(plan, pool)
        if not plan.intent.observes and any(pool.manager_config for pool in plan.pools):
            document = config_manager.document(new_lock.manager_configs.every(), AMD.partitioner_stops)
            yield _CONFIG, json.dumps(document, indent=2) + "\n"

    def values(self, plan: Plan, new_lock: Lock) -> Iterator[tuple[str, Document]]:  # noqa: ARG002 - nothing is remembered
        """Yield the values of AMD's chart, the intent's own merged in."""
        if _installs(plan):
            yield f"{_stack(plan).stack.value}/values.yaml", _upstream_values(plan)

    def images(self, plan: Plan) -> Iterator[str]:
        """Yield the lines of `images.txt` on AMD's chart."""
        if not _installs(plan):
            return
        platform, amd, values = plan.intent.platform, _stack(plan), _upstream_values(plan)
        stack, chart = amd.stack, upstream.vendor_chart(amd.stack.value)
        where = f"{chart.name} --repo {chart.repository} --version {amd.version or chart.version}"
        yield f"{HEADINGS[amd.vendor]}: helm pull {where}"
        if stack is contract.Stack.AMD_GPU_OPERATOR:
            ours, own = (
                _split(_operator_image(platform)),
                values.get("controllerManager", {}).get("manager", {}).get("image", {}),
            )
            yield f"{own.get('repository') or ours['repository']}:{own.get('tag') or ours['tag']}"
        has_labeller = stack is contract.Stack.AMD_GPU_OPERATOR or values.get("labeller", {}).get("enabled", False)
        yield from (_image(platform, part) for part in _PARTS[stack] if part != "nodeLabeller" or has_labeller)
        if any(values.get(part, {}).get("enabled", default) for part, default in _SUBCHARTS[stack].items()):
            yield f"{OF_SUBCHARTS}: helm show values {where}"

    def discovery_tolerations(self, plan: Plan) -> list[Document]:
        """Return that they stay while AMD's config manager divides the GPUs of a node."""
        return [{"key": MANAGER_TAINT, "operator": "Exists"}] if _has_operator(plan) else []

    def discovery_rules(self, plan: Plan) -> list[Document]:
        """Return the rule by which node feature discovery labels nodes with AMD's GPUs.

        From nodes without that label AMD's operator removes what its labeller has written (gpu-operator v1.5.1,
        handleNodeLabeller).
        """
        if not _has_operator(plan):
            return []
        ids = {device for pool in _pools(plan) for device in pool.card.pci_device_ids}
        among = {"vendor": ["1002"], "device": sorted(device[2:6].lower() for device in ids)}
        matches = {key: {"op": "In", "value": value} for key, value in among.items()}
        features = [{"feature": "pci.device", "matchExpressions": matches}]
        return [{"name": "amd-gpu", "labels": {"feature.node.kubernetes.io/amd-gpu": "true"}, "matchFeatures": features}]

    def step(self, plan: Plan) -> Iterator[str]:
        """Yield the lines of the step; none without AMD's cards."""
        return _step(plan)

    def removal(self, plan: Plan, new_lock: Lock) -> Iterator[str]:
        """Yield the section on removing the stack that served AMD's cards in an earlier bundle."""
        last = new_lock.stacks.get(AMD.word)
        if last is None or last["stack"] not in AMD.charts or _pools(plan) or plan.intent.observes:
            return
        yield from ("## AMD's chart", "", "No pool has AMD's cards. When no node is listed, AMD's chart can be removed:", "")
        yield f"    kubectl get nodes --selector {VENDOR_LABEL}=amd"
        yield from (f"    helm uninstall {last['stack']} --namespace {last['namespace']} --timeout 10m", "")

    def leaving(self, plan: Plan) -> Iterator[str]:
        """Yield what becomes of AMD's stack when gpushare is removed."""
        return _leaving(plan)


def _step(plan: Plan) -> Iterator[str]:
    if not _pools(plan):
        return
    amd = _stack(plan)
    drivers = {pool.card.name: pool.card.min_driver for pool in _pools(plan) if pool.card.min_driver}
    listed = join_words([f"that of ROCm {version} on {name}" for name, version in drivers.items()])
    yield "Nodes need AMD's driver, which gpushare does not install" + (
        f"; for partitions at least {listed}." if listed else "."
    )
    if amd.stack is contract.Stack.EXISTING:
        yield "AMD's device plugin is installed already, and stays as it is. It must offer what the table above says: the node"
        yield "runtime compares it, and changes nothing."
        return
    if amd.stack is contract.Stack.AMD_GPU_OPERATOR:
        yield "AMD's chart needs cert-manager. It is first, because gpushare's chart has objects of its kinds and namespace."
        if plan.intent.platform.stack is NvidiaStack.EXISTING:
            yield f"Node feature discovery must give nodes with AMD's GPUs the label `{_DISCOVERED}`, or AMD's operator removes"
            yield f"the labels of its labeller. Its workers must tolerate `{MANAGER_TAINT}`."
    chart = upstream.vendor_chart(amd.stack.value)
    yield ""
    yield f"    helm upgrade --install {amd.stack.value} {chart.name} --repo {chart.repository} \\"
    yield f"      --version {amd.version or chart.version} --namespace {amd.namespace} \\"
    yield f"      --values {amd.stack.value}/values.yaml --timeout 10m"
    yield f"    kubectl --namespace {amd.namespace} get pods --output wide"
    yield ""
    if amd.stack is contract.Stack.AMD_DEVICE_PLUGIN:
        yield "lists a pod for each node as soon as gpushare has labelled it. Nothing of it divides GPUs: bring the GPUs of"
        yield "each pool into their modes yourself, with `amd-smi`."
        return
    yield "lists the operator's own pods; the others follow when gpushare has labelled the nodes."
    if any(pool.manager_config for pool in _pools(plan)):
        yield f"While the GPUs of a node are divided it has the taint `{MANAGER_TAINT}=up:NoExecute`, which ends every pod"
        yield "without a toleration of it. Before the first change, give one to all that must stay on the nodes, such as the"
        yield "network plugin and kube-proxy in `kube-system`:"
        yield ""
        yield f"    {{key: {MANAGER_TAINT}, operator: Equal, value: up, effect: NoExecute}}"


def _leaving(plan: Plan) -> Iterator[str]:
    if not _pools(plan):
        return
    amd = _stack(plan)
    yield "GPUs of AMD's stay divided as they are, and no pod that uses them is waited for."
    if amd.stack is contract.Stack.AMD_GPU_OPERATOR:
        yield "gpushare's DeviceConfigs go with it, and with them AMD's device plugin from its nodes: apply DeviceConfigs of"
        yield "your own to go on without gpushare, or remove AMD's operator:"
    elif amd.stack is contract.Stack.AMD_DEVICE_PLUGIN:
        yield "AMD's device plugin is for nodes with the label `gpushare.dev/vendor`, which is gone: set `node_selector` of its"
        yield "chart, or remove it:"
    else:
        return
    yield from ("", f"    helm uninstall {amd.stack.value} --namespace {amd.namespace} --timeout 10m", "")


def _pools(plan: Plan) -> tuple[PoolPlan, ...]:
    return plan.pools_of(AMD.word)


def _stack(plan: Plan) -> VendorStack:
    return plan.intent.platform.of_vendor(AMD.word)


def _installs(plan: Plan) -> bool:
    return bool(_pools(plan)) and not plan.intent.observes and _stack(plan).installs_chart


def _has_operator(plan: Plan) -> bool:
    return _installs(plan) and _stack(plan).has_operator


def _device_config(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    platform = plan.intent.platform
    tolerations = _tolerations((pool,))
    secrets = [{"name": name} for name in platform.image_pull_secrets]
    return {
        "selector": {POOL_LABEL: pool.name},
        "driver": {"enable": False},
        "commonConfig": {
            "initContainerImage": _image(platform, "initContainer"),
            **({"imageRegistrySecrets": secrets} if secrets else {}),
        },
        "devicePlugin": {
            "enableDevicePlugin": True,
            "devicePluginImage": _image(platform, "devicePlugin"),
            "devicePluginArguments": dict(pool.profile.config),
            "devicePluginTolerations": tolerations,
            "enableNodeLabeller": True,
            "nodeLabellerImage": _image(platform, "nodeLabeller"),
            "nodeLabellerArguments": _LABELS,
            "nodeLabellerTolerations": tolerations,
        },
        "metricsExporter": {
            "enable": True,
            "image": _image(platform, "metricsExporter"),
            "serviceType": "ClusterIP",
            "port": 5000,
            "tolerations": tolerations,
            **_monitor(plan.intent.monitoring),
        },
        "configManager": {
            "enable": pool.manager_config is not None,
            "image": _image(platform, CONFIG_MANAGER),
            "config": {"name": OBJECTS.config_map},
            "configManagerTolerations": tolerations,
        },
    }


def _monitor(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exporter's ServiceMonitor; empty without the Prometheus operator, whose kind it is."""
    if not wanted.get("serviceMonitor") or not wanted.get("operator", True):
        return {}
    labels = {"labels": dict(wanted["labels"])} if wanted.get("labels") else {}
    return {"prometheus": {"serviceMonitor": {"enable": True, **labels}}}


def _tolerations(served: tuple[PoolPlan, ...]) -> list[dict[str, Any]]:
    """Return those of our taints and of the pools, each once."""
    wanted = [{"key": key, "operator": "Exists"} for key in OUR_TAINTS]
    wanted += [dict(toleration) for pool in served for toleration in pool.pool.tolerations]
    return [one for number, one in enumerate(wanted) if one not in wanted[:number]]


def _upstream_values(plan: Plan) -> dict[str, Any]:
    values = _operator(plan) if _stack(plan).has_operator else _plugin(plan)
    _merge(values, _stack(plan).values)
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
        "worker": {"tolerations": [*map(dict, _DISCOVERY), *_tolerations(_pools(plan))]},
    }
    return {
        "crds": {"defaultCR": {"install": False, "upgrade": False}},
        "defaultDCMConfigMap": {"install": False},
        "node-feature-discovery": {"enabled": is_alone, **(discovery if is_alone else {})},
        "installdefaultNFDRule": is_alone,
        **({"controllerManager": {"manager": {"image": _split(_operator_image(platform))}}} if platform.registry else {}),
        **({"global": {"imagePullSecrets": _secrets(platform)}} if platform.image_pull_secrets else {}),
    }


def _plugin(plan: Plan) -> dict[str, Any]:
    """Return the values of the device plugin alone: it runs on nodes that the node runtime has labelled."""
    platform = plan.intent.platform
    plugin, labeller = ({"image": _split(_image(platform, part))} for part in _PARTS[contract.Stack.AMD_DEVICE_PLUGIN])
    return {
        "dp": plugin,
        "lbl": labeller,
        "imagePullSecrets": _secrets(platform),
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}, *_tolerations(_pools(plan))],
        "node_selector_enabled": True,
        "node_selector": {"feature.node.kubernetes.io/pci-0300_1002.present": None, VENDOR_LABEL: "amd"},
    }


def _split(reference: str) -> dict[str, str]:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def _secrets(platform: Platform) -> list[dict[str, str]]:
    return [{"name": name} for name in platform.image_pull_secrets]


def _image(platform: Platform, part: str) -> str:
    """Return the image of a part, from the site's registry if there is one."""
    repository, _, tag = upstream.vendor_chart(platform.of_vendor(AMD.word).stack.value).images[part].rpartition(":")
    return f"{mirrored(repository, platform.registry)}:{tag}"


def _operator_image(platform: Platform) -> str:
    """Return the operator's image, which has the release of its chart as tag."""
    repository, _, tag = _image(platform, "operator").rpartition(":")
    return f"{repository}:{platform.of_vendor(AMD.word).version or tag}"
