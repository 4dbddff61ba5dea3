"""`README.md` of a bundle that observes: what that means, what to look at, and how to change to enforce and back."""

from collections.abc import Iterator, Sequence

from gpushare.core.wording import pluralize
from gpushare.intent.types import NvidiaStack
from gpushare.render.steps import installing
from gpushare.resolved.plan import Plan
from gpushare_node.contract.tenancy import AdmissionMode


def readme(plan: Plan, gitops: Sequence[str] = ()) -> str:
    """Return the file's text. `gitops`: the lines of the sections on the tools that sync the bundle."""
    lines = (*_meaning(plan), *_install(plan), *gitops, *_look(plan), *_enforce(plan), *_back(plan))
    return "\n".join(lines)


def _meaning(plan: Plan) -> Iterator[str]:
    pools = pluralize(len(plan.pools) + len(plan.vm_pools), "pool")
    yield from (f"# GPUs of {plan.intent.name}: observed", "")
    yield from ("Written by gpushare from the cluster's intent; edits are lost.", "")
    yield f"The intent says `adoption: observe`. This bundle has {pools} and changes nothing that was on the cluster before:"
    yield from ("no GPU, no label or taint of a node, no pod, no quota. On a node it writes two things:", "")
    yield "- the condition `GPUShareReady`, with status False and reason `Observing`, or with what keeps it from observing"
    yield from ("- the annotation `gpushare.dev/would`: JSON with what `enforce` would change there", "")
    yield "The pods of the node runtime have no right to do more: they may not write labels or taints, evict or delete a"
    yield "pod, or send an Event. Every other pod has a higher priority. They request 50m CPU and 64 MiB on each node."
    if plan.intent.admission.mode is not AdmissionMode.NONE:
        yield from ("", "Pods that `enforce` would refuse are admitted, with a warning or an entry in the audit log.")
    yield from ("", "Pools and resources exist only under `enforce`. `gpushare show` lists the plan.", "")


def _install(plan: Plan) -> Iterator[str]:
    namespace = plan.intent.namespace
    yield from ("## Installing", "", *installing.image(plan))
    yield from ("From this folder. The same commands upgrade. The GPUs must be in service already.", "")
    if labels := tuple(installing.labels(plan)):
        yield from (*labels, "")
    yield "    kubectl apply -f namespace.yaml"
    yield f"    helm upgrade --install gpushare chart --namespace {namespace} --wait --timeout 5m"
    yield from ("", "Install nothing else: NVIDIA's components keep their own values. No program reads ConfigMap")
    yield "`gpushare-profiles`, unless an earlier bundle enforced: then the device plugin still needs it."
    if plan.intent.platform.runtime_class:
        yield from ("", f"The pods need the runtime class `{plan.intent.platform.runtime_class}`.")
    yield from (
        "",
        "Uninstalling removes the condition and the annotation, and changes nothing else. The ConfigMap stays: delete it",
    )
    yield from ("unless an earlier bundle enforced.", "")
    yield f"    helm uninstall gpushare --namespace {namespace} --timeout 10m"
    yield from (f"    kubectl --namespace {plan.intent.plugin_namespace} delete configmap gpushare-profiles", "")


def _look(plan: Plan) -> Iterator[str]:
    yield from ("## What to look at", "")
    columns = 'NODE:.metadata.name,WHY:.status.conditions[?(@.type=="GPUShareReady")].message'
    yield f"    kubectl get nodes -o custom-columns='{columns}'"
    yield "    kubectl get node NODE -o jsonpath='{.metadata.annotations.gpushare\\.dev/would}'"
    yield from (f"    kubectl --namespace {plan.intent.namespace} logs --selector app.kubernetes.io/name=gpushare", "")
    yield "The log has each step that `enforce` would take against a container, once a violation. On port 9408,"
    yield "`gpushare_would_act_total` counts these actions and `gpushare_containers_over_cap` the containers over their caps"
    yield "now. Caps are compared as if every container had been started under them; under `enforce`, those that ran before"
    yield from ("are warned and not ended, as `enforcement.notice` says.", "")


def _enforce(plan: Plan) -> Iterator[str]:
    yield from ("## Changing to enforce", "", "This is the first change of hardware.", "")
    yield "1. Write `adoption: enforce`, or remove the field."
    yield "2. Run `gpushare plan BUNDLE intent.yaml` with this folder as BUNDLE: it lists what changes on nodes and for pods."
    yield "   Read `gpushare.dev/would` on the nodes: it names the pods that use the GPUs that change."
    yield "3. Run `gpushare compile`, and follow the new README: its steps configure the device plugin too."
    if plan.intent.platform.stack is NvidiaStack.EXISTING:
        yield "   Those for the plugin that is already there are in `existing/README.md`."
    yield ""


def _back(plan: Plan) -> Iterator[str]:
    yield from ("## Changing back to observe", "")
    yield "GPUs that were partitioned stay partitioned, labels and taints stay, and the device plugin continues to offer the"
    yield "shares. From then on the layout is not repaired, no container over its cap is ended, no pod is refused, and quotas"
    yield "are removed. Leave NVIDIA's release as it is. Memory limits of the driver and MPS stay until their container ends."
    yield "If node pools start with the taint `gpushare.dev/not-ready`, remove it there first: nothing removes it in `observe`."
    yield f"To release the nodes of {plan.intent.name}, change to `enforce` and uninstall that."
    yield ""
