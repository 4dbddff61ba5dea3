"""Values of the upstream chart: `values.yaml` and `restore-values.yaml` in `gpu-operator/` or `device-plugin/`.

Writes only paths that the chart knows; `managed_values` lists them. The intent's own values are merged last: maps are merged,
lists replaced, and null is kept, with which Helm deletes the chart's default. Environment lists are the exception: ours are
appended, because K3s and RKE2 must add to them, and losing ours, even to null, would open a security hole.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpushare.facts.catalog import managed_values, upstream
from gpushare.facts.catalog.image_registry import mirrored
from gpushare.intent.types import NvidiaStack
from gpushare.offering.backends import vgpu
from gpushare.render.monitoring import artifacts as monitoring
from gpushare.render.stacks import STACKS
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract.names import BACKEND_LABEL, OUR_TAINTS
from gpushare_node.contract.policy import Partitioner

Values = dict[str, Any]

_WORKERS = {  # everything that must run on a node before its layout is verified
    NvidiaStack.GPU_OPERATOR: ("daemonsets.tolerations", "node-feature-discovery.worker.tolerations"),
    NvidiaStack.DEVICE_PLUGIN: ("tolerations", "nfd.worker.tolerations"),
}
_DISCOVERY = {NvidiaStack.GPU_OPERATOR: "node-feature-discovery", NvidiaStack.DEVICE_PLUGIN: "nfd"}
_NAMED_SECRETS = ("imagePullSecrets", "node-feature-discovery.imagePullSecrets", "nfd.imagePullSecrets")


def upstream_values(plan: Plan, *, has_dra: bool) -> Values:
    """Return the values for the chart of the intent's stack, the intent's own merged in; empty for stack `existing`.

    `has_dra`: NVIDIA's DRA driver serves nodes, or did.
    """
    platform = plan.intent.platform
    if not platform.installs_chart:
        return {}
    settings = _operator(plan) if platform.stack is NvidiaStack.GPU_OPERATOR else _plugin(has_dra=has_dra)
    return _combined(plan, (*settings, *_tolerations(plan, OUR_TAINTS)))


def restoring_values(plan: Plan) -> Values:
    """Return the values with which the chart needs nothing of gpushare: its own defaults, except for what its nodes need.

    These are the intent's driver, registry, secrets, pools' tolerations and own values. Parts that were not installed beside
    gpushare stay off: mig-manager would change GPUs, and its image is not listed. GFD stays on, because it brings NFD, and
    the plugin's pods select NFD's labels.
    """
    if plan.intent.platform.stack is NvidiaStack.GPU_OPERATOR:
        is_installed = plan.intent.platform.partitioner is Partitioner.MIG_MANAGER
        settings = [("migManager.enabled", is_installed), *_driver(plan), *_vgpus(plan, {"name": "", "default": "default"})]
    else:
        settings = [("gfd.enabled", True)]
    return _combined(plan, (*settings, *_tolerations(plan, ())))


def _combined(plan: Plan, settings: Iterable[tuple[str, Any]]) -> Values:
    """Return the settings with what the charts of this intent always get: repositories, secrets and its own values."""
    values: Values = {}
    for path, value in (*settings, *_discovered(plan), *_repositories(plan), *_secrets(plan)):
        _set(values, path, value)
    _merge(values, plan.intent.platform.values)
    return values


def _operator(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the values that sharing needs of gpu-operator v26.7.0."""
    mig_manager = plan.intent.platform.partitioner is Partitioner.MIG_MANAGER
    yield "mig.strategy", plan.operator_mig_strategy or ""
    yield "devicePlugin.config", {"create": False, "name": "gpushare-profiles", "default": ""}
    if plan.intent.platform.values.get("cdi", {}).get("enabled", True) is False:
        # In unprivileged containers the toolkit ignores the plugin's default strategy, an environment variable.
        yield "devicePlugin.env", _env(DEVICE_LIST_STRATEGY="volume-mounts")
    yield "migManager.enabled", mig_manager
    if mig_manager:
        yield "migManager.config", {"create": False, "name": "gpushare-mig-parted", "default": "all-disabled"}
    yield from _driver(plan)
    yield from _vgpus(plan, {"name": vgpu.OPERATOR_CONFIG_MAP, "default": vgpu.NONE})
    yield (
        "toolkit.env",
        _env(
            ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED="false",
            ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS="true",
        ),
    )
    by_plugin = [pool for pool in plan.pools if not pool.pool.backend.has_claims]
    if any(device.replicas > 1 for pool in by_plugin for device in pool.samples):
        # Otherwise the metrics of a shared GPU name one pod at random, and those of renamed resources no pod.
        renamed = _renamed(by_plugin)
        names = {"NVIDIA_RESOURCE_NAMES": ",".join(renamed)} if renamed else {}
        yield "dcgmExporter.env", _env(KUBERNETES_VIRTUAL_GPUS="true", **names)
        yield "dcgmExporter.hostPID", True
    if monitoring.is_for_operator(plan.intent):
        # The operator's chart makes the ConfigMap, in the namespace where its exporter reads it.
        yield "dcgmExporter.config", {"create": True, "name": monitoring.NAME, "data": monitoring.csv_text()}


def _renamed(pools: Iterable[PoolPlan]) -> list[str]:
    return sorted({resource.name for pool in pools for resource in pool.resources if resource.name.endswith(".shared")})


def _driver(plan: Plan) -> Iterator[tuple[str, Any]]:
    driver = plan.intent.platform.driver
    yield "driver.enabled", driver is not None
    if driver is not None:
        for field, value in (("repository", driver.repository), ("image", driver.image), ("version", driver.version)):
            if value is not None:
                yield f"driver.{field}", value


def _vgpus(plan: Plan, config: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the values for nodes of virtual machines; the others run containers as without them.

    `config` names the ConfigMap of the vGPU device manager, and the config of nodes without a label.
    """
    manager = plan.intent.platform.vgpu_manager
    if manager is None:
        return
    yield "sandboxWorkloads", {"enabled": True, "defaultWorkload": "container", "mode": "kubevirt"}
    yield "vgpuManager.enabled", True
    for field, value in (("repository", manager.repository), ("image", manager.image), ("version", manager.version)):
        if value is not None:
            yield f"vgpuManager.{field}", value
    yield "vgpuDeviceManager.enabled", True
    yield "vgpuDeviceManager.config", dict(config)
    yield "sandboxDevicePlugin.enabled", True


def _plugin(*, has_dra: bool) -> Iterator[tuple[str, Any]]:
    """Yield the values that sharing needs of nvidia-device-plugin 0.20.0.

    A node without a label gets no config, so it offers whole GPUs. GFD, with NFD, sets the label that MPS waits for. Beside the
    DRA driver, the plugin keeps off the nodes that are the driver's, or are on their way.
    """
    yield "config", {"name": "gpushare-profiles", "default": "", "fallbackStrategies": ["empty"]}
    yield "gfd.enabled", True
    if has_dra:
        fact = upstream.chart(NvidiaStack.DEVICE_PLUGIN.value).path("affinity")
        away = {"key": BACKEND_LABEL, "operator": "NotIn", "values": ["none", "dra"]}
        default = (
            fact.default["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] if fact else ()
        )
        terms = [{"matchExpressions": [*term["matchExpressions"], away]} for term in default]
        yield "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", terms


def _tolerations(plan: Plan, taints: Iterable[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the chart's own tolerations, those of the taints, and those of every pool."""
    stack = plan.intent.platform.stack
    defaults = upstream.chart(stack.value).tolerations
    ours = [{"key": key, "operator": "Exists"} for key in taints]
    wanted = [pool.pool for pool in plan.pools] + [pool.pool for pool in plan.vm_pools]
    pools = [dict(toleration) for pool in wanted for toleration in pool.tolerations]
    beside = [toleration for programs in STACKS for toleration in programs.discovery_tolerations(plan)]
    for path in _WORKERS[stack]:
        union: list[dict[str, Any]] = []
        seen = set()
        more = beside if path.startswith(_DISCOVERY[stack]) else []
        for toleration in (*map(dict, defaults[path]), *more, *ours, *pools):
            identity = tuple(sorted((key, str(value)) for key, value in toleration.items()))
            if identity not in seen:
                seen.add(identity)
                union.append(toleration)
        yield path, union


def _repositories(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield every repository under the site's registry, also of disabled operands: the intent may enable them."""
    platform = plan.intent.platform
    if platform.registry is None:
        return
    for image in upstream.chart(platform.stack.value).images:
        path = f"{image.section}.repository"
        if path != "driver.repository" or (platform.driver and platform.driver.repository is None):
            yield path, mirrored(image.values[path], platform.registry)


def _secrets(plan: Plan) -> Iterator[tuple[str, list[Any]]]:
    """Yield pull secrets for every path where the chart reads them: names for the operator, else objects as in Kubernetes."""
    platform = plan.intent.platform
    if not platform.image_pull_secrets:
        return
    chart = upstream.chart(platform.stack.value)
    names = platform.image_pull_secrets
    for path in managed_values.owned(plan.intent, chart):
        known = upstream.check_path(chart, tuple(path.split(".")))
        if path.endswith("imagePullSecrets") and isinstance(known, upstream.Known | upstream.OpenMap):
            yield path, [{"name": name} for name in names] if path in _NAMED_SECRETS else list(names)


def _discovered(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the rules by which node feature discovery labels nodes for the stacks beside this chart."""
    if rules := [rule for stack in STACKS for rule in stack.discovery_rules(plan)]:
        yield f"{_DISCOVERY[plan.intent.platform.stack]}.worker.config.sources.custom", rules


def _env(**variables: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _set(values: Values, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        values = values.setdefault(key, {})
    values[last] = value


def _merge(values: Values, more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        ours = values.get(key)
        if isinstance(ours, dict) and isinstance(value, dict):
            _merge(ours, value)
        elif isinstance(ours, list) and key == "env":
            theirs = value or []
            names = {entry.get("name") for entry in theirs}
            values[key] = [*theirs, *(entry for entry in ours if entry["name"] not in names)]
        else:
            values[key] = value
