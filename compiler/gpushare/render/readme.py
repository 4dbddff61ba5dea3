"""`README.md` of the bundle: what users of the GPUs request, and the commands to install the bundle and to leave, in order.

Built without a template engine, whose import takes longer than the rest of a compile.
"""

from collections.abc import Iterator, Sequence

from gpushare.core import emit
from gpushare.core.wording import join_words
from gpushare.facts.catalog.image_registry import example_image
from gpushare.intent import gitops
from gpushare.intent.types import NvidiaStack, Requests
from gpushare.offering import backends, claims, modes
from gpushare.offering.claims import ClaimShape
from gpushare.render.gitops.tool import Tool
from gpushare.render.stacks import STACKS
from gpushare.render.steps import installing, leaving
from gpushare.resolved.plan import DevicePlan, Plan, PoolPlan
from gpushare_node.contract.names import MEMORY, POOL_LABEL
from gpushare_node.contract.policy import Action, Partitioner

_OURS = "app.kubernetes.io/name=gpushare"
_PLUGIN = {
    NvidiaStack.GPU_OPERATOR: "app=nvidia-device-plugin-daemonset",
    NvidiaStack.DEVICE_PLUGIN: "app.kubernetes.io/name=nvidia-device-plugin",
}
"""The labels of the device plugin's pods."""
_START_UP_TAINT = (
    "New nodes need a taint, so that no pod is scheduled to them before their layout is verified. The commands for each",
    "node pool, and how to remove the taint before you leave: [nodes/cloud.md](nodes/cloud.md).",
)


def readme(plan: Plan, more: Sequence[str], tool: Tool | None, machines: Sequence[str], *, has_cloud: bool) -> str:
    """Return the file's text. `more`: the lines of the sections after the installation; `machines`: on virtual machines.

    `tool` syncs the bundle, None if Helm installs it; `has_cloud`: of `nodes/cloud.md`.
    """
    return "\n".join(
        [
            f"# GPUs of {plan.intent.name}",
            "",
            "Written by gpushare from the cluster's intent; edits are lost.",
            "",
            *_table(plan),
            *(line for pool in plan.pools for line in _pool(pool, plan)),
            *machines,
            *_quotas(plan),
            *_install(plan, has_cloud=has_cloud),
            *more,
            *leaving.section(plan, tool, tuple(line for stack in STACKS for line in stack.leaving(plan)), has_cloud=has_cloud),
            *_not_generated(plan),
        ]
    )


def _table(plan: Plan) -> Iterator[str]:
    if not plan.pools:
        return
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
    if pool.pool.backend.has_claims:
        yield from _claims(pool, plan)
    elif others:
        yield from (f"The same with {' or '.join(f'`{name}`' for name in others)}.", "")


def _claims(pool: PoolPlan, plan: Plan) -> Iterator[str]:
    """Yield how pods ask a pool of DRA for its devices: the claims to choose from, and the names in `limits`."""
    shapes = claims.shapes(pool.pool, pool.card, pool.kinds, plan.division)
    if pool.pool.requests is not Requests.LIMITS:
        if not pool.pool.namespaces:
            listed = join_words([f"`{quota.namespace}`" for quota in plan.quotas]) if plan.quotas else "no namespace"
            yield f"Claim templates are in {listed}. This adds those for another namespace:"
            yield ""
            yield "    gpushare claims INTENT NAMESPACE | kubectl replace --force --filename -"
            yield ""
        yield from ("| resourceClaimTemplateName | a claim gets |", "|---|---|")
        yield from (f"| `{shape.template}` | {_gets(pool, shape)} |" for shape in shapes)
        yield ""
    backend = backends.of(pool.pool, pool.card)
    names = {one.name: backend.limits(one.name)[0] for one in pool.resources}
    if pool.pool.requests is not Requests.CLAIMS:
        listed = join_words([f"`{name}: 1`" for name in names.values()])
        yield from (f"Under `limits`: {listed}, in one container of a pod.", "")


def _gets(pool: PoolPlan, shape: ClaimShape) -> str:
    kind = next(one for one in pool.kinds if one.resource == shape.device_class)
    what = f"an instance {kind.profile.name}" if kind.profile else "a GPU"
    if not kind.shared:
        return "a whole GPU" if kind.profile is None else what
    memory = shape.alternatives[0].get(MEMORY)
    return f"{memory} of {what}" if memory else f"one of {kind.replicas} shares of {what}"


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
    backend = backends.of(pool.pool, pool.card)
    image, command = example_image(plan.intent.platform.registry), list(pool.vendor.shown_by)
    container = {"name": "main", "image": image, "command": command}
    spec: dict[str, object] = {"restartPolicy": "Never", "nodeSelector": {POOL_LABEL: pool.name}}
    if plan.intent.platform.runtime_class and backend.needs_runtime_class:
        spec["runtimeClassName"] = plan.intent.platform.runtime_class
    if pool.pool.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in pool.pool.tolerations]
    spec |= backend.requesting(container, resource)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{pool.name}-"}, "spec": spec}


def _quotas(plan: Plan) -> Iterator[str]:
    if plan.quotas:
        yield from ("## Quotas", "", "Namespaces that are not listed are not limited.", "")
        yield from ("| namespace | resource | at most |", "|---|---|---|")
        for quota in plan.quotas:
            yield from (f"| {quota.namespace} | `{backends.quota_resource(name)}` | {number} |" for name, number in quota.hard)
        yield ""


def _install(plan: Plan, *, has_cloud: bool) -> Iterator[str]:
    yield from (
        "## Installing",
        "",
        *installing.image(plan),
        "In this order, from this folder. The same commands upgrade.",
        "",
    )
    charts = [("gpushare", _gpushare(plan)), ("The device plugin", _upstream(plan))]
    if plan.intent.copies_config_map:  # It must hold a profile before a node asks for it.
        charts.reverse()
    steps = (
        ("Namespaces" if len(gitops.namespaces(plan.intent)) > 1 else "Namespace", installing.namespaces(plan)),
        ("Labels of nodes", installing.labels(plan)),
        *((stack.title, stack.step(plan)) for stack in STACKS if stack.is_first),
        *charts,
        *((stack.title, stack.step(plan)) for stack in STACKS if not stack.is_first),
        ("Virtual machines", installing.vm_labels(plan)),
        ("Check", _check(plan) if plan.pools else ()),
        ("Start-up taint", _START_UP_TAINT if has_cloud else ()),
    )
    number = 0
    for title, step in steps:
        lines = tuple(step)
        if lines:
            number += 1
            yield from (f"### {number}. {title}", "", *lines, "")
    yield from ("`images.txt` lists every image; `intent.yaml` is what this bundle is made from.", "")


def _gpushare(plan: Plan) -> Iterator[str]:
    yield f"    helm upgrade --install gpushare chart --namespace {plan.intent.namespace} --timeout 5m"
    yield f"    kubectl --namespace {plan.intent.namespace} get daemonsets --selector {_OURS}"
    next_step = "" if plan.intent.copies_config_map or not plan.has_nvidia else " of the next step"
    yield from ("", "lists a DaemonSet for each pool, and `gpushare-release`. Without `--wait`: on a first installation the")
    yield f"pods wait for the driver and the device plugin{next_step}."


def _upstream(plan: Plan) -> Iterator[str]:
    platform = plan.intent.platform
    if platform.stack is NvidiaStack.NONE or (platform.stack is NvidiaStack.EXISTING and not plan.has_nvidia):
        return
    if platform.stack is NvidiaStack.EXISTING:
        steps = "[existing/README.md](existing/README.md)"
        yield f"Configure the installed device plugin to read gpushare's profiles: {steps}."
        return
    has_null = installing.renders_null(plan)
    if has_null:
        yield "The pools, or those of an earlier bundle, need different MIG strategies. So the operator's is empty, which"
        yield from ("server-side apply refuses. Only Helm 4 has the option `--server-side=false`: omit it with Helm 3.", "")
    yield from installing.upgrade(plan, "values.yaml", *(["--server-side=false"] if has_null else []))
    yield f"    kubectl --namespace {plan.intent.plugin_namespace} get pods --selector {_PLUGIN[platform.stack]} --output wide"
    yield from ("", "lists a pod for each GPU node, `Running` as soon as the node has its driver.")
    if platform.stack is NvidiaStack.GPU_OPERATOR:
        yield from ("", "The operator's `mig.strategy` applies to every node at once, including nodes in use. The value in")
        yield "this bundle works with every profile that a node may still have. Where it changes, upgrade the operator first."
        yield "From v26.7.0 on the operator labels the nodes of GPU clients, and gpushare's pods then require that label:"
        yield "upgrade an older operator first, too."
    if platform.partitioner is Partitioner.MIG_MANAGER:
        yield from ("", "The operator's mig-manager partitions the GPUs, by the configs in ConfigMap `gpushare-mig-parted`.")


def _check(plan: Plan) -> Iterator[str]:
    nodes = f"--selector {_OURS},app.kubernetes.io/component=node"
    yield f"    kubectl --namespace {plan.intent.namespace} rollout status daemonset {nodes} --timeout 10m"
    yield "    gpushare status"
    yield from ("", "The first command prints `successfully rolled out` for each pool when every node offers its shares;")
    yield "a node whose GPUs are in use keeps it waiting. The second has the number of ready nodes, and the reason of every"
    yield "other node."


def _not_generated(plan: Plan) -> Iterator[str]:
    """Yield what the intent may request and this version does not generate."""
    missing = list(_missing(plan))
    if missing:
        yield from ("## Not in this bundle yet", "", *missing, "")


def _missing(plan: Plan) -> Iterator[str]:
    platform = plan.intent.platform
    if not plan.has_nvidia:
        return
    if platform.stack is not NvidiaStack.GPU_OPERATOR or platform.values.get("toolkit", {}).get("enabled") is False:
        yield "- The container toolkit's settings: an image that sets NVIDIA_VISIBLE_DEVICES may see every GPU of its node."
