"""`README.md` of the bundle: what users of the GPUs request, and the commands to install the bundle and to leave, in order.

Built without a template engine, whose import takes longer than the rest of a compile.
"""

import json
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
from gpushare.core.wording import pluralize
from gpushare.intent import gitops as sync
from gpushare.intent.types import Action, Operator, Partitioner, Stack
from gpushare.nodes.clouds import is_set_by_a_program
from gpushare.nodes.selectors import POOL_LABEL
from gpushare.resolved.plan import DevicePlan, Plan, PoolPlan

_OURS = "app.kubernetes.io/name=gpushare"
_PLUGIN = {
    Stack.GPU_OPERATOR: "app=nvidia-device-plugin-daemonset",
    Stack.DEVICE_PLUGIN: "app.kubernetes.io/name=nvidia-device-plugin",
}
"""The labels of the device plugin's pods."""
_RESTORE = "restore-values.yaml"
_DETACHED = '{"metadata": {"finalizers": null}}'
"""Of the root Application: its deletion then leaves what it installed."""


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
            *_leave(plan),
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
    yield from ("## Installing", "", *_image(plan), "In this order, from this folder. The same commands upgrade.", "")
    steps = (
        ("Namespace", _namespaces(plan)),
        ("Labels of nodes", _labels(plan)),
        ("gpushare", _gpushare(plan)),
        ("The device plugin", _upstream(plan)),
        ("Check", _check(plan)),
    )
    number = 0
    for title, step in steps:
        lines = tuple(step)
        if lines:
            number += 1
            yield from (f"### {number}. {title}", "", *lines, "")
    yield from ("`images.txt` lists every image; `nodes/pools.yaml` is the plan of every pool for programs.", "")


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


def _namespaces(plan: Plan) -> Iterator[str]:
    yield "    kubectl apply" + "".join(f" -f {file}" for file in sync.namespaces(plan.intent))
    yield from ("", f"prints `namespace/{plan.intent.namespace} created`, later `unchanged`.")
    if plan.quotas:
        yield "Create the namespaces in the quota table too: the next steps put their quotas into them."


def _labels(plan: Plan) -> Iterator[str]:
    """Yield the commands for labels by which pools select nodes, and which no program sets."""
    asked = [(pool, [(key, value) for key, value in _asked(pool) if not is_set_by_a_program(key)]) for pool in plan.pools]
    if not any(pairs for _, pairs in asked):
        return
    yield "Pools select nodes by these labels, which only you can set: replace NODE by the names of the pool's nodes."
    yield from ("Node pools that add nodes need the labels in their own configuration, too.", "")
    for pool, pairs in asked:
        if pairs:
            labels = [f"{key}={value}" for key, value in pairs]
            yield f"    kubectl label nodes NODE {' '.join(labels)}"
            number = "" if pool.nodes is None else f", {pluralize(pool.nodes, 'node')}"
            yield f"    kubectl get nodes --selector {','.join(labels)}  # pool {pool.name}{number}"


def _asked(pool: PoolPlan) -> Iterator[tuple[str, str]]:
    yield from pool.pool.nodes.match_labels
    for expression in pool.pool.nodes.match_expressions:
        if expression.operator is Operator.IN:
            yield expression.key, expression.values[0]


def _gpushare(plan: Plan) -> Iterator[str]:
    yield f"    helm upgrade --install gpushare chart --namespace {plan.intent.namespace} --timeout 5m"
    yield f"    kubectl --namespace {plan.intent.namespace} get daemonsets --selector {_OURS}"
    yield from (
        "",
        "lists a DaemonSet for each pool, and `gpushare-release`. Without `--wait`: on a first installation the pods wait",
    )
    yield "for the driver and the device plugin of the next step."


def _upstream(plan: Plan) -> Iterator[str]:
    platform = plan.intent.platform
    if platform.stack is Stack.EXISTING:
        steps = "[existing/README.md](existing/README.md)"
        yield f"Configure the installed device plugin to read gpushare's profiles: {steps}."
        return
    yield from _upgrade(plan, "values.yaml")
    yield f"    kubectl --namespace {plan.intent.plugin_namespace} get pods --selector {_PLUGIN[platform.stack]} --output wide"
    yield from ("", "lists a pod for each GPU node, `Running` as soon as the node has its driver.")
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


def _upgrade(plan: Plan, file: str) -> Iterator[str]:
    """Yield the command that installs NVIDIA's chart, or upgrades it, with one of the bundle's files of values for it."""
    platform = plan.intent.platform
    chart = upstream.chart(platform.stack.value)
    where = chart.in_words_of_helm(platform.charts)
    yield f"    helm upgrade --install {chart.name} {where} --version {platform.version or chart.version} \\"
    yield f"      --namespace {plan.intent.plugin_namespace} --values {platform.stack.value}/{file} --timeout 10m"


def _check(plan: Plan) -> Iterator[str]:
    nodes = f"--selector {_OURS},app.kubernetes.io/component=node"
    yield f"    kubectl --namespace {plan.intent.namespace} rollout status daemonset {nodes} --timeout 10m"
    yield "    gpushare status"
    yield from ("", "The first command prints `successfully rolled out` for each pool when every node offers its shares;")
    yield "a node whose GPUs are in use keeps it waiting. The second has the number of ready nodes, and the reason of every"
    yield "other node."


def next_steps(plan: Plan) -> tuple[str, ...]:
    """Return what is left to do after gpushare's uninstall, one command after the other, in the folder of the bundle."""
    if plan.intent.observes:
        return ()
    kubectl = f"kubectl --namespace {plan.intent.plugin_namespace}"
    names = ["gpushare-profiles"]
    if plan.intent.platform.partitioner is Partitioner.MIG_MANAGER:
        names.append("gpushare-mig-parted")
    mounted = f"{kubectl} get pods --output yaml | grep {' '.join(f'-e {name}' for name in names)}"
    return _restore(plan), f"{mounted} || {kubectl} delete configmap {' '.join(names)}"


def _restore(plan: Plan) -> str:
    """Return the command after which no pod of NVIDIA's needs a ConfigMap of ours."""
    intent, stack = plan.intent, plan.intent.platform.stack
    if stack is Stack.EXISTING:
        return "restore the values of the device plugin's chart: existing/README.md names those that were changed"
    chart = upstream.chart(stack.value).name
    if "flux" in intent.gitops:
        name = f"{sync.object_name(intent, 'flux')}-{chart}"
        made = f"create configmap {name} --from-file values.yaml={stack.value}/{_RESTORE} --dry-run=client --output yaml"
        return f"{_kubectl(plan, 'flux')} {made} | kubectl apply --server-side --force-conflicts --filename -"
    if "argocd" in intent.gitops:
        path = sync.in_repository(sync.settings(intent, "argocd")["path"], f"{stack.value}/{_RESTORE}")
        change = {"op": "replace", "path": "/spec/sources/0/helm/valueFiles/0", "value": f"$values/{path}"}
        name = f"{sync.object_name(intent, 'argocd')}-{chart}"
        return f"{_kubectl(plan, 'argocd')} patch application {name} --type json --patch '[{json.dumps(change)}]'"
    return " ".join(line.strip(" \\") for line in _upgrade(plan, _RESTORE))


def _kubectl(plan: Plan, tool: str) -> str:
    return f"kubectl --namespace {sync.settings(plan.intent, tool)['namespace']}"


def _leave(plan: Plan) -> Iterator[str]:
    restore, delete = next_steps(plan)
    yield from ("## Leaving", "")
    yield from ("In this order. If a node pool starts its nodes with a taint of gpushare, remove the taint there first.", "")
    yield from _remove(plan)
    yield from ("    kubectl get nodes --selector gpushare.dev/pool", "")
    yield "This makes every GPU whole. It takes minutes, and waits for nodes whose GPUs are in use; it is done when no node is"
    yield "listed. ConfigMap `gpushare-profiles` stays: the device plugin, whose values name it, does not start without it."
    if not plan.intent.gitops:
        yield "If Helm fails, gpushare is still installed: repeat the command."
    yield ""
    if plan.intent.platform.stack is Stack.EXISTING:
        yield f"Now or later, {restore}."
    else:
        yield from ("Give NVIDIA's chart values without gpushare, now or later:", "", f"    {restore}")
    yield from ("", "Delete the ConfigMap. While a pod uses it, the command prints that instead, and is to be repeated:", "")
    yield from (f"    {delete}", "")


def _remove(plan: Plan) -> Iterator[str]:
    """Yield the commands that remove our chart and leave NVIDIA's."""
    if "flux" in plan.intent.gitops:
        yield f"    {_kubectl(plan, 'flux')} delete kustomization {sync.object_name(plan.intent, 'flux')}"
    elif "argocd" in plan.intent.gitops:
        kubectl, name = f"    {_kubectl(plan, 'argocd')}", sync.object_name(plan.intent, "argocd")
        yield f"{kubectl} patch application {name} --type merge --patch '{_DETACHED}'"
        yield f"{kubectl} delete application {name}"
        yield f"{kubectl} delete application {name}-gpushare"
        yield f"{kubectl} delete application {name}-rights"
    else:
        yield f"    helm uninstall gpushare --namespace {plan.intent.namespace} --timeout 10m"


def _not_generated(plan: Plan) -> Iterator[str]:
    """Yield what the intent may request and this version does not generate."""
    missing = list(_missing(plan))
    if missing:
        yield from ("## Not in this bundle yet", "", *missing, "")


def _missing(plan: Plan) -> Iterator[str]:
    platform = plan.intent.platform
    if platform.stack is not Stack.GPU_OPERATOR or platform.values.get("toolkit", {}).get("enabled") is False:
        yield "- The container toolkit's settings: an image that sets NVIDIA_VISIBLE_DEVICES may see every GPU of its node."
