"""The step of the bundle's `README.md` that installs AMD's chart, and what becomes of it when gpushare leaves."""

from collections.abc import Iterator, Mapping

from gpushare.core.wording import join_words
from gpushare.facts.catalog import amd_charts
from gpushare.facts.vendors.amd import MANAGER_TAINT
from gpushare.intent.types import AmdStack, NvidiaStack
from gpushare.resolved.plan import Plan
from gpushare_node.contract.names import VENDOR_LABEL

_RELEASES = {AmdStack.GPU_OPERATOR: "amd-gpu-operator", AmdStack.DEVICE_PLUGIN: "amd-device-plugin"}
"""What Helm calls what it installed."""

_DISCOVERED = "feature.node.kubernetes.io/amd-gpu=true"


def step(plan: Plan) -> Iterator[str]:
    """Yield the lines of the step; none without AMD's cards."""
    if not plan.amd_pools:
        return
    amd = plan.intent.platform.of_amd
    drivers = {pool.card.name: pool.card.min_driver for pool in plan.amd_pools if pool.card.min_driver}
    listed = join_words([f"that of ROCm {version} on {name}" for name, version in drivers.items()])
    yield "Nodes need AMD's driver, which gpushare does not install" + (
        f"; for partitions at least {listed}." if listed else "."
    )
    if amd.stack is AmdStack.EXISTING:
        yield "AMD's device plugin is installed already, and stays as it is. It must offer what the table above says: the node"
        yield "runtime compares it, and changes nothing."
        return
    if amd.stack is AmdStack.GPU_OPERATOR:
        yield "AMD's chart needs cert-manager. It is first, because gpushare's chart has objects of its kinds and namespace."
        if plan.intent.platform.stack is NvidiaStack.EXISTING:
            yield f"Node feature discovery must give nodes with AMD's GPUs the label `{_DISCOVERED}`, or AMD's operator removes"
            yield f"the labels of its labeller. Its workers must tolerate `{MANAGER_TAINT}`."
    chart = amd_charts.chart(amd.stack.value)
    yield ""
    yield f"    helm upgrade --install {_RELEASES[amd.stack]} {chart.name} --repo {chart.repository} \\"
    yield f"      --version {amd.version or chart.version} --namespace {amd.namespace} \\"
    yield f"      --values {amd.stack.value}/values.yaml --timeout 10m"
    yield f"    kubectl --namespace {amd.namespace} get pods --output wide"
    yield ""
    if amd.stack is AmdStack.DEVICE_PLUGIN:
        yield "lists a pod for each node as soon as gpushare has labelled it. Nothing of it divides GPUs: bring the GPUs of"
        yield "each pool into their modes yourself, with `amd-smi`."
        return
    yield "lists the operator's own pods; the others follow when gpushare has labelled the nodes."
    if any(pool.manager_config for pool in plan.amd_pools):
        yield f"While the GPUs of a node are divided it has the taint `{MANAGER_TAINT}=up:NoExecute`, which ends every pod"
        yield "without a toleration of it. Before the first change, give one to all that must stay on the nodes, such as the"
        yield "network plugin and kube-proxy in `kube-system`:"
        yield ""
        yield f"    {{key: {MANAGER_TAINT}, operator: Equal, value: up, effect: NoExecute}}"


def removal(last: Mapping[str, str]) -> Iterator[str]:
    """Yield the section on removing the stack that served AMD's cards in an earlier bundle."""
    release = _RELEASES.get(AmdStack(last["stack"])) if last else None
    if release is None:
        return
    yield from (
        "## AMD's chart",
        "",
        "No pool has AMD's cards. When no node is listed, AMD's chart can be removed:",
        "",
    )
    yield f"    kubectl get nodes --selector {VENDOR_LABEL}=amd"
    yield from (f"    helm uninstall {release} --namespace {last['namespace']} --timeout 10m", "")


def leaving(plan: Plan) -> Iterator[str]:
    """Yield what becomes of AMD's stack when gpushare is removed."""
    if not plan.amd_pools:
        return
    amd = plan.intent.platform.of_amd
    yield "GPUs of AMD's stay divided as they are, and no pod that uses them is waited for."
    if amd.stack is AmdStack.GPU_OPERATOR:
        yield "gpushare's DeviceConfigs go with it, and with them AMD's device plugin from its nodes: apply DeviceConfigs of"
        yield "your own to go on without gpushare, or remove AMD's operator:"
    elif amd.stack is AmdStack.DEVICE_PLUGIN:
        yield "AMD's device plugin is for nodes with the label `gpushare.dev/vendor`, which is gone: set `node_selector` of its"
        yield "chart, or remove it:"
    else:
        return
    yield from ("", f"    helm uninstall {_RELEASES[amd.stack]} --namespace {amd.namespace} --timeout 10m", "")
