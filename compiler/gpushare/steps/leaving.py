"""How to remove gpushare and keep NVIDIA's chart: a section of the bundle's `README.md`, and what the uninstallation prints."""

import json
import shlex
from collections.abc import Iterator

from gpushare.catalog import upstream
from gpushare.intent import gitops
from gpushare.intent.types import Stack
from gpushare.resolved.plan import Plan
from gpushare.steps import amd_release, dra_release, nvidia_release, virtual_machines

NAMESPACE = "PLUGIN_NAMESPACE"
"""What the commands have for the namespace of a plugin that the intent does not state."""
_VALUES = "restore-values.yaml"
_DETACHED = '{"metadata": {"finalizers": null}}'
"""Of the root Application: its deletion then leaves what it installed."""
_NOT_OURS = "--selector 'app.kubernetes.io/name!=gpushare'"
"""The pod of a failed uninstallation has the command in its arguments, and uses no ConfigMap."""


def next_steps(plan: Plan) -> tuple[str, ...]:
    """Return what is left to do after gpushare's uninstall, one command after the other, in the folder of the bundle."""
    if plan.intent.observes or not plan.has_nvidia:
        return ()
    by_helm = _restore_by_helm(plan)
    instead = [f"instead, if Helm installed NVIDIA's chart: {by_helm}"] if plan.intent.gitops and by_helm else []
    return (*virtual_machines.leaving(plan), _restore(plan), *instead, *_deletions(plan))


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
    which = "every GPU of NVIDIA's" if plan.amd_pools else "every GPU"
    return f"makes {which} whole"


def staying(plan: Plan) -> str:
    """Return what a GitOps tool leaves."""
    namespace = f"Namespace `{plan.intent.namespace}`"
    return f"{namespace} and {kept(plan)} stay" if plan.has_nvidia else f"{namespace} stays"


def section(plan: Plan, *, has_cloud: bool) -> Iterator[str]:
    """Yield the section's lines. `has_cloud`: the bundle has `nodes/cloud.md`."""
    intent = plan.intent
    tools = [gitops.TOOLS[key].title for key in intent.gitops]
    yield from ("## Leaving", "")
    if tools and gitops.installs_upstream(intent):
        yield f"This keeps NVIDIA's chart. To remove it too, delete as section {' or '.join(tools)} says, instead of this."
    how = " (`nodes/cloud.md`)" if has_cloud else ""
    yield f"In this order, from this folder. If node pools start nodes with a taint of gpushare, first remove it there{how}."
    yield from ("", *_remove(plan), "    kubectl get nodes --selector gpushare.dev/pool", "")
    if not plan.has_nvidia:
        yield "It takes minutes; it is done when no node is listed."
        yield from _by_helm(plan) if intent.gitops else _failed(plan)
        yield from ("", *amd_release.leaving(plan))
        return
    others = (*amd_release.leaving(plan), *dra_release.leaving(plan))
    yield f"This {released(plan)}. It takes minutes, and waits for nodes whose GPUs are in use; it is done when no node is"
    stay, it = ("stay", "them") if len(intent.kept_config_maps) > 1 else ("stays", "it")
    yield f"listed. {kept(plan)} {stay}: NVIDIA's pods mount {it}, and do not start without."
    yield from _by_helm(plan) if intent.gitops else _failed(plan)
    yield ""
    if relabelled := [f"    {command}" for command in virtual_machines.leaving(plan)]:
        yield "Let NVIDIA's own configs make the same vGPUs; none changes:"
        yield from ("", *relabelled, "")
    if others:
        yield from (*others, "")
    if intent.platform.stack is Stack.EXISTING:
        yield f"Now or later, {_restore(plan)}."
    else:
        yield from ("Give NVIDIA's chart values without gpushare, now or later:", "", f"    {_restore(plan)}")
    first, *copies = _deletions(plan)
    yield from ("", "Delete what stayed. While a pod or DaemonSet uses it, the command prints `still in use`: repeat it then.")
    yield from ("", f"    {first}", "")
    if copies:
        yield "If you applied a copy to the namespace of the plugin, delete it there in the same way:"
        yield from ("", *(f"    {command}" for command in copies), "")
    yield from _rest(plan)


def kept(plan: Plan) -> str:
    """Return the ConfigMaps that stay."""
    names = " and ".join(f"`{name}`" for name in plan.intent.kept_config_maps)
    return f"{'ConfigMaps' if len(plan.intent.kept_config_maps) > 1 else 'ConfigMap'} {names}"


def _restore(plan: Plan) -> str:
    """Return the command after which no pod of NVIDIA's needs a ConfigMap of ours."""
    intent, stack = plan.intent, plan.intent.platform.stack
    if stack is Stack.EXISTING:
        return "restore the values of the device plugin's chart: existing/README.md names those that were changed"
    chart = upstream.chart(stack.value).name
    if "flux" in intent.gitops:
        name = f"{gitops.object_name(intent, 'flux')}-{chart}"
        made = f"create configmap {name} --from-file values.yaml={stack.value}/{_VALUES} --dry-run=client --output yaml"
        return f"{_kubectl(plan, 'flux')} {made} | kubectl apply --server-side --force-conflicts --filename -"
    if "argocd" in intent.gitops:
        path = gitops.in_repository(gitops.settings(intent, "argocd")["path"], f"{stack.value}/{_VALUES}")
        change = {"op": "replace", "path": "/spec/sources/0/helm/valueFiles/0", "value": f"$values/{path}"}
        name = f"{gitops.object_name(intent, 'argocd')}-{chart}"
        return f"{_kubectl(plan, 'argocd')} patch application {name} --type json --patch {shlex.quote(json.dumps([change]))}"
    return _restore_by_helm(plan)


def _restore_by_helm(plan: Plan) -> str:
    """Return the command on one line; none where the bundle does not install NVIDIA's chart."""
    if not plan.intent.platform.installs_chart:
        return ""
    return " ".join(line.strip(" \\") for line in nvidia_release.upgrade(plan, _VALUES))


def _deletions(plan: Plan) -> Iterator[str]:
    yield delete_config_maps(plan)
    if plan.intent.copies_config_map:
        yield delete_config_maps(plan, NAMESPACE)


def _remove(plan: Plan) -> Iterator[str]:
    """Yield the commands that remove our chart and leave NVIDIA's."""
    if "flux" in plan.intent.gitops:
        yield f"    {_kubectl(plan, 'flux')} delete kustomization {gitops.object_name(plan.intent, 'flux')}"
    elif "argocd" in plan.intent.gitops:
        kubectl, name = f"    {_kubectl(plan, 'argocd')}", gitops.object_name(plan.intent, "argocd")
        yield f"{kubectl} patch application {name} --type merge --patch '{_DETACHED}'"
        yield f"{kubectl} delete application {name}"
        yield f"{kubectl} delete application {name}-gpushare"
        yield f"{kubectl} delete application {name}-rights {name}-namespace"
    else:
        yield f"    {_uninstall(plan)}"


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


def _rest(plan: Plan) -> Iterator[str]:
    """Yield what becomes of the other objects of the tool that synced the bundle."""
    if "flux" in plan.intent.gitops:
        delete = f"{_kubectl(plan, 'flux')} delete gitrepository {gitops.object_name(plan.intent, 'flux')}"
        yield from ("Delete the source when HelmRelease gpushare is gone; NVIDIA's needs it no more:", "", f"    {delete}", "")
    elif "argocd" in plan.intent.gitops:
        project = gitops.settings(plan.intent, "argocd")["project"]
        its = f"AppProject `{project}`" if project != "default" else ""
        if gitops.installs_upstream(plan.intent):
            name = f"{gitops.object_name(plan.intent, 'argocd')}-{upstream.chart(plan.intent.platform.stack.value).name}"
            needs = f", and {its}" if its else ""
            yield from (
                f"Application `{name}` stays, as NVIDIA's chart does.",
                f"Keep what it needs: the bundle in the repository{needs}.",
                "",
            )
        elif its:
            yield from (f"{its} stays. Delete it, if no other Application belongs to it.", "")


def _kubectl(plan: Plan, tool: str) -> str:
    return f"kubectl --namespace {gitops.settings(plan.intent, tool)['namespace']}"
