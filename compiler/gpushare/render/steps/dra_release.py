"""The step of the bundle's `README.md` that installs the chart of NVIDIA's DRA driver, and what becomes of it afterwards.

A tool that syncs the bundle keeps the chart when the bundle has it no more: nodes leave the driver one after the other.
"""

from collections.abc import Iterator

from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.intent.types import DraVia
from gpushare.resolved.plan import Plan
from gpushare_node.contract.names import BACKEND_LABEL

_NAME = upstream.FILES[upstream.DRA]
_VALUES = f"{_NAME}/values.yaml"


def step(plan: Plan) -> Iterator[str]:
    """Yield the lines of the step; none without pools of DRA."""
    if not plan.dra_pools:
        return
    dra, chart = plan.intent.platform.of_dra, upstream.chart(upstream.DRA)
    if dra.via is DraVia.EXISTING:
        yield f"NVIDIA's DRA driver is installed already. Give its chart the values of [{_VALUES}]({_VALUES}): all"
        yield f"of them are needed, above all the `nodeSelector`. gpushare sets the label `{BACKEND_LABEL}: dra` on a node when"
        yield "nothing else offers its GPUs."
        return
    where = chart.helm_reference(plan.intent.platform.charts)
    yield f"    helm upgrade --install {chart.name} {where} --version {dra.version or chart.version} \\"
    yield f"      --namespace {dra.namespace} --values {_VALUES} --timeout 10m"
    yield f"    kubectl --namespace {dra.namespace} get daemonsets"
    yield ""
    yield "lists the driver's DaemonSet. It has a pod on each node that gpushare has given to it."


def removal(plan: Plan) -> Iterator[str]:
    """Yield the section on removing the driver that served pools of an earlier bundle."""
    yield from ("## NVIDIA's DRA driver", "", "No pool is served by it. When no node is listed, its chart can be removed:", "")
    yield f"    kubectl get nodes --selector {BACKEND_LABEL}=dra"
    yield from (*_uninstall(plan), "")
    yield "The DeviceClasses stay until gpushare is uninstalled: by them pods are placed on nodes that wait for their turn."
    yield "A class that nothing offers is without effect."
    yield ""


def leaving(plan: Plan) -> Iterator[str]:
    """Yield what becomes of the driver when gpushare is removed."""
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
