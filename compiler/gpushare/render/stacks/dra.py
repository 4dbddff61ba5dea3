"""The objects of pools that NVIDIA's DRA driver serves, and the values of the driver's chart.

A DeviceClass for each kind of a pool's devices, and in each of its namespaces a ResourceClaimTemplate for each shape of claim.
A file for each pool, and one for the classes of earlier bundles; the chart's templates make the objects. The driver runs on
nodes with the label that the node runtime sets last and removes first, one node after the other: where it is away, a pod that
ends hangs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare.bundle.lock import FormerClasses, Lock, former
from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.image_registry import mirrored
from gpushare.intent import gitops
from gpushare.intent.types import DraVia, NvidiaStack
from gpushare.offering import backends, claims, modes
from gpushare.offering.backends.dra import CONFIG_API, DRIVER, REQUEST, DraDriver
from gpushare.offering.claims import Bound, Capacity, ClaimShape
from gpushare.render.stacks.stack import Document, Stack
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract.names import BACKEND_LABEL, IMPLICIT, OUR_TAINTS, POOL_LABEL
from gpushare_node.contract.policy import DraShares

FOLDER = "chart/files/dra"
FORMER = "chart/files/former-classes.yaml"
_NAME = upstream.FILES[upstream.DRA]
VALUES = f"{_NAME}/values.yaml"
_KUBELET_ROOT = "/var/lib/kubelet"
_OF_NAMES = ("named.", "claims.")
"""With which the lookups of names in limits begin."""


def remembered(plan: Plan) -> Document:
    """Return what the lock records: the driver's namespace and every class; nothing without pools of DRA."""
    if not plan.dra_pools:
        return {}
    # A bundle that observes makes no class.
    entries = {} if plan.intent.observes else dict(entry for pool in plan.dra_pools for entry in _remembered(plan, pool))
    namespace = plan.intent.platform.of_dra.namespace if plan.intent.installs_dra_driver else ""
    by_memory = {"byMemory": True} if plan.division.by is DraShares.MEMORY else {}
    intervals = {"intervals": True} if plan.sets_intervals else {}
    tolerations = [dict(one) for pool in plan.dra_pools for one in pool.pool.tolerations]
    return {"driverNamespace": namespace, "classes": entries, "tolerations": tolerations} | by_memory | intervals


def _remembered(plan: Plan, pool: PoolPlan) -> Iterator[tuple[str, Document]]:
    profiles = {device.resource: device.profile for device in pool.samples}
    of_pool = {f"namespace.{namespace}": pool.name for namespace in pool.pool.namespaces}
    of_pool |= {f"limited.{pool.name}": "true"} if of_pool else {}
    for bound in claims.bounds(pool.pool, pool.kinds, plan.division):
        name = bound.device_class
        # A name that the device plugin offers again means its devices, of which containers may have several.
        own = {key: text for key, text in _of_class(pool, bound) if not key.startswith(_OF_NAMES) or IMPLICIT in key}
        key = DraDriver(pool.pool, pool.card).quota_key(name)
        quotas = {quota.namespace: dict(quota.hard)[key] for quota in plan.quotas if key in dict(quota.hard)}
        spec = device_class(pool, name, profiles[name])
        yield name, {"pool": pool.name, "spec": spec, "lookups": dict(sorted((own | of_pool).items())), "quotas": quotas}


def former_classes(plan: Plan, dra: Mapping[str, Any]) -> FormerClasses:
    """Return the classes of a lock's `dra` that no pool has any more, or all if the bundle observes and makes none."""
    pools = () if plan.intent.observes else plan.dra_pools
    return former(dra, {device.resource for pool in pools for device in pool.samples})


def _objects(plan: Plan, pool: PoolPlan) -> Document:
    offered = claims.shapes(pool.pool, pool.card, pool.kinds, plan.division)
    return {
        "classes": {device.resource: device_class(pool, device.resource, device.profile) for device in pool.samples},
        "templates": {shape.template: claim(shape) for shape in offered},
        "namespaces": list(namespaces(plan, pool)),
        "tests": [DraDriver(pool.pool, pool.card).template(device.resource) for device in pool.samples],
    }


def namespaces(plan: Plan, pool: PoolPlan) -> tuple[str, ...]:
    """Return the namespaces that get the templates of a pool: its own, or those that have quotas."""
    return tuple(sorted(pool.pool.namespaces or {quota.namespace for quota in plan.intent.quotas}))


def device_class(pool: PoolPlan, resource: str, profile: str | None) -> Document:
    """Return the specification of a class: it selects by what the driver says of a device."""
    device = f"device.attributes['{DRIVER}']"
    names = [pool.card.name, *pool.card.name_aliases]
    listed = ", ".join(map(_text, names))
    product = f"{device}.productName == {listed}" if len(names) == 1 else f"{device}.productName in [{listed}]"
    kind = f"{device}.type == 'mig' && {device}.profile == '{profile}'" if profile else f"{device}.type == 'gpu'"
    expression = f"device.driver == '{DRIVER}' && {kind} && {product}"
    name = DraDriver(pool.pool, pool.card).extended_name(resource)
    return {
        "selectors": [{"cel": {"expression": expression}}],
        **_config(pool),
        **({"extendedResourceName": name} if name else {}),
    }


def _config(pool: PoolPlan) -> Document:
    interval = modes.of(pool.pool).interval
    if interval is None:
        return {}
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval.value.capitalize()}}
    parameters = {"apiVersion": CONFIG_API, "kind": "GpuConfig", "sharing": sharing}
    return {"config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}]}


def _text(value: str) -> str:
    """Return a text as CEL writes it: the name of a card of one's own may have any characters."""
    inside = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{inside}'"


def claim(shape: ClaimShape) -> Document:
    """Return the specification of a claim of that shape."""
    first, *others = shape.alternatives
    if not others:
        return {"devices": {"requests": [{"name": REQUEST, "exactly": _asked(shape.device_class, first)}]}}
    listed = [
        {"name": f"at-{number}", **_asked(shape.device_class, capacity)} for number, capacity in enumerate(shape.alternatives)
    ]
    return {"devices": {"requests": [{"name": REQUEST, "firstAvailable": listed}]}}


def _asked(device_class: str, capacity: Capacity) -> Document:
    return {"deviceClassName": device_class, **({"capacity": {"requests": dict(capacity)}} if capacity else {})}


def templates(plan: Plan, namespace: str) -> Iterator[Document]:
    """Yield the ResourceClaimTemplates of all pools that a namespace may use."""
    for pool in plan.dra_pools:
        if namespace in pool.pool.namespaces or not pool.pool.namespaces:
            for shape in claims.shapes(pool.pool, pool.card, pool.kinds, plan.division):
                yield {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaimTemplate",
                    "metadata": {"name": shape.template, "namespace": namespace, "labels": {POOL_LABEL: pool.name}},
                    "spec": {"spec": claim(shape)},
                }


def lookups(plan: Plan, pool: PoolPlan) -> dict[str, str]:
    """Return what the policies on claims, and on pods that use them, look up of a pool: `admission/claims.yaml` explains it."""
    bounds = claims.bounds(pool.pool, pool.kinds, plan.division)
    return dict(sorted(entry for bound in bounds for entry in _of_class(pool, bound)))


def _of_class(pool: PoolPlan, bound: Bound) -> Iterator[tuple[str, str]]:
    name = bound.device_class
    yield f"class.{name}", pool.name
    if bound.is_shared:
        yield f"shared.{name}", "true"
    if bound.most:
        yield f"most.{name}", _pairs(bound.most)
    if bound.exactly:
        yield f"exactly.{name}", _pairs(bound.exactly)
    if bound.slices:
        yield f"slices.{name}", str(bound.slices)
    for limit in backends.of(pool.pool, pool.card).limits(name):
        yield f"named.{limit}", name
        if bound.most or bound.exactly:
            yield f"claims.{limit}", "true"


def _pairs(capacity: Capacity) -> str:
    return " ".join(f"{name}={quantity}" for name, quantity in sorted(capacity.items()))


def upstream_values(plan: Plan, tolerations: Sequence[Document]) -> Document:
    """Return the values of the driver's chart; empty if no pool needs it. `tolerations`: of the pools that it serves or did."""
    if not plan.dra_pools or plan.intent.observes:
        return {}
    platform = plan.intent.platform
    chart = upstream.chart(upstream.DRA)
    (image,) = chart.images
    root = kubelet_root(plan)
    folders = {
        "kubeletRegistrarDirectoryPath": f"{root}/plugins_registry",
        "kubeletPluginsDirectoryPath": f"{root}/plugins",
    }
    secrets = [{"name": name} for name in platform.image_pull_secrets]
    repository = mirrored(image.values["image.repository"], platform.registry)
    return {
        # Without it the chart refuses GPUs, because a plugin may be beside it: here no node has both.
        "gpuResourcesEnabledOverride": True,
        "resourceApiVersion": "resource.k8s.io/v1",
        "resources": {"computeDomains": {"enabled": False}},
        "nvidiaDriverRoot": platform.of_dra.driver_root,
        **_gates(plan),
        **({"image": {"repository": repository}} if platform.registry else {}),
        **({"imagePullSecrets": secrets} if secrets else {}),
        "kubeletPlugin": {
            "nodeSelector": {BACKEND_LABEL: "dra"},
            "tolerations": _tolerations(chart.tolerations["kubeletPlugin.tolerations"], tolerations),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            **(folders if root != _KUBELET_ROOT else {}),
        },
    }


def _gates(plan: Plan) -> Document:
    divided = plan.division
    shares = {} if divided.by is None else {"ConsumableShares": True}
    gates = shares | ({"DynamicMIG": True} if plan.makes_instances else {})
    gates |= {"TimeSlicingSettings": True} if plan.sets_intervals else {}
    number = "memory" if divided.by is DraShares.MEMORY else str(divided.shares)
    return ({"featureGates": gates} if gates else {}) | ({"consumableShares": number} if shares else {})


def _tolerations(defaults: tuple[Mapping[str, str], ...], of_pools: Sequence[Document]) -> list[Document]:
    wanted = [dict(one) for one in defaults]
    wanted += [{"key": key, "operator": "Exists"} for key in OUR_TAINTS]
    wanted += of_pools
    return [one for number, one in enumerate(wanted) if one not in wanted[:number]]


def kubelet_root(plan: Plan) -> str:
    """Return kubelet's own folder on the nodes."""
    platform = plan.intent.platform
    of_operator = (
        platform.values.get("hostPaths", {}).get("kubeletRootDir") if platform.stack is NvidiaStack.GPU_OPERATOR else None
    )
    return (of_operator or "").rstrip("/") or _KUBELET_ROOT


class DraPrograms(Stack):
    """NVIDIA's DRA driver.

    A tool that syncs the bundle keeps its chart when the bundle has it no more: nodes leave the driver one after the other.
    """

    title = "The DRA driver"

    def chart_files(self, plan: Plan, new_lock: Lock) -> Iterator[tuple[str, Document | str]]:
        """Yield the classes and templates of each pool, and the classes that are left of earlier bundles."""
        if not plan.intent.observes:
            for pool in plan.dra_pools:
                yield f"{FOLDER}/{pool.name}.yaml", _objects(plan, pool)
        left = former_classes(plan, new_lock.dra)
        if left.classes:
            yield FORMER, left.specs()

    def values(self, plan: Plan, new_lock: Lock) -> Iterator[tuple[str, Document]]:
        """Yield the values of the driver's chart."""
        if of_driver := upstream_values(plan, new_lock.dra.get("tolerations", ())):
            yield VALUES, of_driver

    def images(self, plan: Plan) -> Iterator[str]:
        """Yield the lines of `images.txt` on the driver's chart."""
        if not plan.intent.installs_dra_driver:
            return
        platform, chart = plan.intent.platform, upstream.chart(upstream.DRA)
        version = platform.of_dra.version or chart.version
        (image,) = chart.images
        repository = mirrored(image.values["image.repository"], platform.registry)
        yield f"{upstream.OF_DRA}: helm pull {chart.helm_reference(platform.charts)} --version {version}"
        yield f"{repository}:v{version}"

    def step(self, plan: Plan) -> Iterator[str]:
        """Yield the lines of the step; none without pools of DRA."""
        return _step(plan)

    def removal(self, plan: Plan, new_lock: Lock) -> Iterator[str]:
        """Yield the section on removing the driver that served pools of an earlier bundle."""
        if plan.dra_pools or plan.intent.observes or not new_lock.has_dra:
            return
        yield from (
            "## NVIDIA's DRA driver",
            "",
            "No pool is served by it. When no node is listed, its chart can be removed:",
            "",
        )
        yield f"    kubectl get nodes --selector {BACKEND_LABEL}=dra"
        yield from (*_uninstall(plan), "")
        yield "The DeviceClasses stay until gpushare is uninstalled: by them pods are placed on nodes that wait for their turn."
        yield "A class that nothing offers is without effect."
        yield ""

    def leaving(self, plan: Plan) -> Iterator[str]:
        """Yield what becomes of the driver when gpushare is removed."""
        return _leaving(plan)


def _step(plan: Plan) -> Iterator[str]:
    if not plan.dra_pools:
        return
    dra, chart = plan.intent.platform.of_dra, upstream.chart(upstream.DRA)
    if dra.via is DraVia.EXISTING:
        yield f"NVIDIA's DRA driver is installed already. Give its chart the values of [{VALUES}]({VALUES}): all"
        yield f"of them are needed, above all the `nodeSelector`. gpushare sets the label `{BACKEND_LABEL}: dra` on a node when"
        yield "nothing else offers its GPUs."
        return
    where = chart.helm_reference(plan.intent.platform.charts)
    yield f"    helm upgrade --install {chart.name} {where} --version {dra.version or chart.version} \\"
    yield f"      --namespace {dra.namespace} --values {VALUES} --timeout 10m"
    yield f"    kubectl --namespace {dra.namespace} get daemonsets"
    yield ""
    yield "lists the driver's DaemonSet. It has a pod on each node that gpushare has given to it."


def _leaving(plan: Plan) -> Iterator[str]:
    if not plan.dra_pools:
        return
    yield "Nodes of the DRA driver go back to the device plugin, and gpushare's DeviceClasses and claim templates go with it:"
    yield "pods that use them must have ended. The driver stays, and has no node; to remove it:"
    yield from ("", *_uninstall(plan))


def _uninstall(plan: Plan) -> Iterator[str]:
    """Yield the commands, those for the tools that installed the chart first."""
    dra = plan.intent.platform.of_dra
    tools = () if dra.via is DraVia.EXISTING else plan.intent.gitops
    yield from (f"    {delete(plan, tool)}" for tool in tools)
    by_helm = f"helm uninstall {_NAME} --namespace {dra.namespace} --timeout 10m"
    yield from ("", f"or, if Helm installed it, `{by_helm}`.") if tools else (f"    {by_helm}",)


def delete(plan: Plan, tool: str) -> str:
    """Return the command that deletes what a tool of GitOps has for the chart, and with it the driver."""
    where, kinds = gitops.settings(plan.intent, tool)["namespace"], gitops.TOOLS[tool].of_chart
    return f"kubectl --namespace {where} delete {kinds} {gitops.object_name(plan.intent, tool)}-{_NAME}"
