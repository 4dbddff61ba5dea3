"""How to remove gpushare and keep NVIDIA's chart: a section of the bundle's `README.md`, and what the uninstallation prints."""

from collections.abc import Iterator, Sequence

from gpushare.intent import gitops
from gpushare.intent.types import NvidiaStack
from gpushare.render.gitops.tool import Tool
from gpushare.render.steps import installing
from gpushare.resolved.plan import Plan

NAMESPACE = "PLUGIN_NAMESPACE"
"""What the commands have for the namespace of a plugin that the intent does not state."""
_VALUES = "restore-values.yaml"
_NOT_OURS = "--selector 'app.kubernetes.io/name!=gpushare'"
"""The pod of a failed uninstallation has the command in its arguments, and uses no ConfigMap."""


def next_steps(plan: Plan, tool: Tool | None) -> tuple[str, ...]:
    """Return what is left to do after gpushare's uninstall, one command after the other, in the folder of the bundle.

    `tool` syncs the bundle; None if Helm installs it.
    """
    if plan.intent.observes or not plan.has_nvidia:
        return ()
    by_helm = _restore_by_helm(plan)
    instead = [f"instead, if Helm installed NVIDIA's chart: {by_helm}"] if plan.intent.gitops and by_helm else []
    return (*installing.vm_leaving(plan), _restore(plan, tool), *instead, *_deletions(plan))


def delete_config_maps(plan: Plan, namespace: str = "") -> str:
    """Return the command that deletes the ConfigMaps, unless something in their namespace uses them or cannot be read."""
    kubectl, names = f"kubectl --namespace {namespace or plan.intent.plugin_namespace}", plan.intent.kept_config_maps
    read = f"used=$({kubectl} get pods,daemonsets {_NOT_OURS} --output yaml)"
    in_use = f"{'|'.join(f'*{name}*' for name in names)}) echo 'still in use: {' or '.join(names)}';;"
    return f"{read} && case $used in {in_use} *) {kubectl} delete configmap {' '.join(names)};; esac"


def released(plan: Plan) -> str:
    """Return what the removal does to nodes."""
    if not plan.has_nvidia:
        return "releases every node"
    which = "every GPU of NVIDIA's" if any(not pool.vendor.is_made_whole for pool in plan.pools) else "every GPU"
    return f"makes {which} whole"


def staying(plan: Plan) -> str:
    """Return what a GitOps tool leaves."""
    namespace = f"Namespace `{plan.intent.namespace}`"
    return f"{namespace} and {kept(plan)} stay" if plan.has_nvidia else f"{namespace} stays"


def section(plan: Plan, tool: Tool | None, others: Sequence[str], *, has_cloud: bool) -> Iterator[str]:
    """Yield the section's lines. `others`: what becomes of other stacks. `has_cloud`: the bundle has `nodes/cloud.md`."""
    intent = plan.intent
    tools = [gitops.TOOLS[key].title for key in intent.gitops]
    yield from ("## Leaving", "")
    if tools and gitops.installs_upstream(intent):
        yield f"This keeps NVIDIA's chart. To remove it too, delete as section {' or '.join(tools)} says, instead of this."
    how = " (`nodes/cloud.md`)" if has_cloud else ""
    yield f"In this order, from this folder. If node pools start nodes with a taint of gpushare, first remove it there{how}."
    remove = tool.remove() if tool else [_uninstall(plan)]
    yield from ("", *(f"    {command}" for command in remove), "    kubectl get nodes --selector gpushare.dev/pool", "")
    if not plan.has_nvidia:
        yield "It takes minutes; it is done when no node is listed."
        yield from _by_helm(plan) if tool else _failed(plan)
        yield from ("", *others)
        return
    yield f"This {released(plan)}. It takes minutes, and waits for nodes whose GPUs are in use; it is done when no node is"
    stay, it = ("stay", "them") if len(intent.kept_config_maps) > 1 else ("stays", "it")
    yield f"listed. {kept(plan)} {stay}: NVIDIA's pods mount {it}, and do not start without."
    yield from _by_helm(plan) if tool else _failed(plan)
    yield ""
    if relabelled := [f"    {command}" for command in installing.vm_leaving(plan)]:
        yield "Let NVIDIA's own configs make the same vGPUs; none changes:"
        yield from ("", *relabelled, "")
    if others:
        yield from (*others, "")
    if intent.platform.stack is NvidiaStack.EXISTING:
        yield f"Now or later, {_restore(plan, tool)}."
    else:
        yield from ("Give NVIDIA's chart values without gpushare, now or later:", "", f"    {_restore(plan, tool)}")
    first, *copies = _deletions(plan)
    yield from ("", "Delete what stayed. While a pod or DaemonSet uses it, the command prints `still in use`: repeat it then.")
    yield from ("", f"    {first}", "")
    if copies:
        yield "If you applied a copy to the namespace of the plugin, delete it there in the same way:"
        yield from ("", *(f"    {command}" for command in copies), "")
    yield from tool.rest() if tool else ()


def kept(plan: Plan) -> str:
    """Return the ConfigMaps that stay."""
    names = " and ".join(f"`{name}`" for name in plan.intent.kept_config_maps)
    return f"{'ConfigMaps' if len(plan.intent.kept_config_maps) > 1 else 'ConfigMap'} {names}"


def _restore(plan: Plan, tool: Tool | None) -> str:
    """Return the command after which no pod of NVIDIA's needs a ConfigMap of ours."""
    stack = plan.intent.platform.stack
    if stack is NvidiaStack.EXISTING:
        return "restore the values of the device plugin's chart: existing/README.md names those that were changed"
    return tool.restore(f"{stack.value}/{_VALUES}") if tool else _restore_by_helm(plan)


def _restore_by_helm(plan: Plan) -> str:
    """Return the command on one line; none where the bundle does not install NVIDIA's chart."""
    if not plan.intent.platform.installs_chart:
        return ""
    return " ".join(line.strip(" \\") for line in installing.upgrade(plan, _VALUES))


def _deletions(plan: Plan) -> Iterator[str]:
    yield delete_config_maps(plan)
    if plan.intent.copies_config_map:
        yield delete_config_maps(plan, NAMESPACE)


def _uninstall(plan: Plan, options: str = "--timeout 10m") -> str:
    return f"helm uninstall gpushare --namespace {plan.intent.namespace} {options}"


def _by_helm(plan: Plan) -> Iterator[str]:
    """Yield the commands for a bundle that no tool synced."""
    yield from ("", f"If Helm installed the bundle, begin with `{_uninstall(plan)}` instead.")
    if by_helm := _restore_by_helm(plan):
        yield f"Instead of the next command: `{by_helm}`."


def _failed(plan: Plan) -> Iterator[str]:
    yield "If Helm fails, gpushare is still installed, and the log of the Job names the nodes that did not answer:"
    yield from ("", f"    kubectl --namespace {plan.intent.namespace} logs job/gpushare-uninstall", "")
    yield "Repeat the command when they can answer. Until then Helm refuses every upgrade. To keep gpushare instead, run"
    yield f"`{_uninstall(plan, '--no-hooks')}`, which changes no node, and install it again."
