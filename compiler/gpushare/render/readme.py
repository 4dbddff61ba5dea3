"""`README.md` of the bundle: what users of the GPUs request, and the commands to install the bundle, in order.

Built without a template engine, whose import takes longer than the rest of a compile.
"""

from collections.abc import Iterator, Sequence

from gpushare import backends, modes
from gpushare.catalog import upstream
from gpushare.catalog.image_registry import (
    EXAMPLE_IMAGE,
    build_commands,
    example_image,
    is_example,
    is_unpublished,
    node_image,
    reference,
)
from gpushare.core import emit
from gpushare.intent import gitops as sync
from gpushare.intent.types import Action, Partitioner, Stack
from gpushare.nodes.selectors import POOL_LABEL
from gpushare.resolved.plan import DevicePlan, Plan, PoolPlan


def readme(plan: Plan, gitops: Sequence[str] = ()) -> str:
    """Return the file's text. `gitops`: the lines of the sections on the tools that sync the bundle."""
    return "\n".join(
        [
            f"# GPUs of {plan.intent.name}",
            "",
            "Written by gpushare from the cluster's intent; edits are lost.",
            "",
            *_table(plan),
            *(line for pool in plan.pools for line in _pool(pool, plan)),
            *_quotas(plan),
            *_install(plan),
            *gitops,
            *_not_generated(plan),
        ]
    )


def _table(plan: Plan) -> Iterator[str]:
    yield "| pool | card | mode | nodes | resource | a node has | all nodes have | a device's memory | a container may use |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for pool in plan.pools:
        for name, device in _kinds(pool).items():
            resource = next(one for one in pool.resources if one.name == name)
            cells = [
                f"[{pool.name}](#{pool.name})",
                pool.card.name,
                pool.mode.value,
                _number(pool.nodes),
                f"`{name}`",
                str(resource.per_node),
                _number(resource.total),
                _mib(device.memory_mib),
                "all of it" if device.replicas < 2 else "no limit" if device.cap_mib is None else _mib(device.cap_mib),
            ]
            yield f"| {' | '.join(cells)} |"
    yield ""


def _kinds(pool: PoolPlan) -> dict[str, DevicePlan]:
    """Return the smallest device of each resource: what the README states must be true for every device."""
    kinds: dict[str, DevicePlan] = {}
    for device in pool.samples:
        known = kinds.get(device.resource)
        if known is None or (device.memory_mib or 0) < (known.memory_mib or 0):
            kinds[device.resource] = device
    return dict(sorted(kinds.items()))


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size} MiB"


def _pool(pool: PoolPlan, plan: Plan) -> Iterator[str]:
    kinds = _kinds(pool)
    yield from (f"## {pool.name}", "", modes.of(pool.pool).description)
    if any(device.replicas > 1 for device in kinds.values()):
        yield "Request one share per container. A request for more is refused; it would add neither memory nor speed."
    if any(device.cap_mib is not None for device in kinds.values()):
        yield _consequence(pool)
    if pool.pool.namespaces:
        yield f"For the namespaces {', '.join(sorted(pool.pool.namespaces))}."
    yield ""
    first, *others = kinds
    yield from (f"    {line}" for line in emit.yaml_text(pod(pool, first, plan)).splitlines())
    yield ""
    if others:
        yield from (f"The same with {' or '.join(f'`{name}`' for name in others)}.", "")


def _consequence(pool: PoolPlan) -> str:
    grace = pool.pool.enforcement.grace_seconds
    warned = "A container above its memory limit gets a warning event"
    match pool.pool.enforcement.action:
        case Action.KILL:
            return f"{warned}, and is killed if it stays there for {grace} s more."
        case Action.EVICT:
            return f"{warned}; its pod is evicted if it stays there for {grace} s more."
        case Action.WARN:
            return f"{warned}."
        case Action.NONE:
            return "Memory use is reported; the limit is not enforced."


def pod(pool: PoolPlan, resource: str, plan: Plan) -> dict[str, object]:
    """Return a pod that uses one share of the pool."""
    container = {
        "name": "main",
        "image": example_image(plan.intent.platform.registry),
        "command": ["nvidia-smi", "-L"],
    }
    spec: dict[str, object] = {"restartPolicy": "Never", "nodeSelector": {POOL_LABEL: pool.name}}
    if plan.intent.platform.runtime_class:
        spec["runtimeClassName"] = plan.intent.platform.runtime_class
    if pool.pool.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in pool.pool.tolerations]
    spec |= backends.of(pool.pool).requesting(container, resource)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{pool.name}-"}, "spec": spec}


def _quotas(plan: Plan) -> Iterator[str]:
    if plan.quotas:
        yield from ("## Quotas", "", "Namespaces that are not listed are not limited.", "")
        yield from ("| namespace | resource | at most |", "|---|---|---|")
        for quota in plan.quotas:
            yield from (f"| {quota.namespace} | `{name.removeprefix('requests.')}` | {number} |" for name, number in quota.hard)
        yield ""


def _install(plan: Plan) -> Iterator[str]:
    namespace = plan.intent.namespace
    yield from ("## Installing", "", *_image(plan), "In this order, from this folder. The same commands upgrade.", "")
    yield "    kubectl apply" + "".join(f" -f {file}" for file in sync.namespaces(plan.intent))
    yield f"    helm upgrade --install gpushare chart --namespace {namespace}"
    match plan.intent.platform.stack:
        case Stack.GPU_OPERATOR:
            yield from _upstream(plan, "gpu-operator/values.yaml")
        case Stack.DEVICE_PLUGIN:
            yield from _upstream(plan, "device-plugin/values.yaml")
        case Stack.EXISTING:
            steps = "[existing/README.md](existing/README.md)"
            yield from ("", f"Configure the installed device plugin to read gpushare's profiles: {steps}.")
    if plan.quotas:
        yield from ("", "Create the namespaces in the quota table before installing.")
    yield from ("", "Pods of the node runtime become Ready when a node's layout is verified:", "")
    yield f"    kubectl --namespace {namespace} get pods --selector app.kubernetes.io/name=gpushare --output wide"
    yield from ("", "Uninstall first releases every node. This takes minutes, so give Helm a longer timeout:", "")
    yield f"    helm uninstall gpushare --namespace {namespace} --timeout 10m"
    yield from ("", "`images.txt` lists every image; `nodes/pools.yaml` is the plan of every pool for programs.", "")


def _image(plan: Plan) -> Iterator[str]:
    """Yield where the node runtime's image must be, and how it gets there."""
    platform = plan.intent.platform
    yield f"Nodes pull the node runtime as `{reference(node_image(platform))}`."
    if is_unpublished(platform):
        yield "Nothing is published there. Write where you push the image into the intent, such as"
        yield f"`platform: {{image: {{repository: {EXAMPLE_IMAGE}}}}}`, and compile again."
    elif is_example(platform):
        yield "The registry is an example: write yours into the intent, and compile again."
    with_docker, with_podman = build_commands(platform)
    yield "If it is not there yet, one of these builds and pushes it, in a clone of gpushare's repository"
    yield from ("(`linux/arm64` for nodes with Arm processors):", "", f"    {with_docker}", f"    {with_podman}", "")


def _upstream(plan: Plan, values: str) -> Iterator[str]:
    platform = plan.intent.platform
    chart = upstream.chart(platform.stack.value)
    version = platform.version or chart.version
    where = chart.in_words_of_helm(platform.charts)
    yield f"    helm upgrade --install {chart.name} {where} --version {version} \\"
    yield f"      --namespace {plan.intent.plugin_namespace} --values {values}"
    if platform.stack is Stack.GPU_OPERATOR and plan.operator_mig_strategy is None:
        yield from ("", "The pools, or those of an earlier bundle, need different MIG strategies. So the operator's is empty,")
        yield "and server-side apply refuses that: give Helm 4 `--server-side=false` for this release. Helm 3 needs nothing."
    if platform.stack is Stack.GPU_OPERATOR:
        yield from ("", "The operator's `mig.strategy` applies to every node at once, including nodes in use. The value in")
        yield "this bundle works with every profile that a node may still have. Where it changes, upgrade the operator first."
        yield "From v26.7.0 on the operator labels the nodes of GPU clients, and gpushare's pods then require that label:"
        yield "upgrade an older operator first, too."
    if platform.partitioner is Partitioner.MIG_MANAGER:
        yield from ("", "The operator's mig-manager partitions the GPUs, by the configs in ConfigMap `gpushare-mig-parted`.")


def _not_generated(plan: Plan) -> Iterator[str]:
    """Yield what the intent may request and this version does not generate."""
    missing = list(_missing(plan))
    if missing:
        yield from ("## Not in this bundle yet", "", *missing, "")


def _missing(plan: Plan) -> Iterator[str]:
    platform = plan.intent.platform
    if platform.stack is not Stack.GPU_OPERATOR or platform.values.get("toolkit", {}).get("enabled") is False:
        yield "- The container toolkit's settings: an image that sets NVIDIA_VISIBLE_DEVICES may see every GPU of its node."
