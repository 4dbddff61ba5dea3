"""Installing: the charts of NVIDIA's that a bundle installs, and the steps of its `README.md` before ours.

Those are the node runtime's image, the namespaces, the labels of nodes, also of nodes that are given to virtual machines.
"""

import shlex
from collections.abc import Iterator, Mapping

from gpushare.core.wording import join_words, pluralize
from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.image_registry import (
    EXAMPLE_IMAGE,
    build_commands,
    is_example,
    is_unpublished,
    node_image,
    reference,
)
from gpushare.facts.catalog.upstream import UpstreamChart
from gpushare.facts.nodes.clouds import is_set_by_a_program
from gpushare.intent import gitops
from gpushare.intent.types import NodeSelector, NvidiaStack, Operator
from gpushare.resolved.plan import Plan, VmPool
from gpushare_node.contract.struct import Struct

_IN_WORDS: Mapping[Operator, str] = {
    Operator.IN: "{key} in ({values})",
    Operator.NOT_IN: "{key} notin ({values})",
    Operator.EXISTS: "{key}",
    Operator.DOES_NOT_EXIST: "!{key}",
}
"""As kubectl reads a selector."""


def image(plan: Plan) -> Iterator[str]:
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


def namespaces(plan: Plan) -> Iterator[str]:
    """Yield the command for the namespaces of the charts."""
    made = gitops.namespaces(plan.intent)
    yield "    kubectl apply" + "".join(f" -f {file}" for file in made)
    yield ""
    *first, last = [f"`namespace/{name} created`" for name in made.values()]
    yield f"prints {' and '.join([*first, last])}, later `unchanged`."
    if plan.quotas:
        yield "Create the namespaces in the quota table too: the next steps put their quotas into them."
    listed = {quota.namespace for quota in plan.quotas}
    if named := sorted({name for pool in plan.dra_pools for name in pool.pool.namespaces} - listed):
        yield f"Create {join_words([f'`{name}`' for name in named])} too, into which claim templates are put."


def labels(plan: Plan) -> Iterator[str]:
    """Yield the commands for labels by which pools select nodes, and which no program sets."""
    pools = [pool for pool in plan.every_pool if any(not is_set_by_a_program(key) for key, _ in _required(pool.pool.nodes))]
    if not pools:
        return
    yield "Pools select nodes by these labels, which only you can set: replace NODE by the names of the pool's nodes."
    yield "Node pools that add nodes need the labels in their own configuration, too."
    if any(pool.pool.nodes.match_expressions for pool in pools):
        yield "In a selector, a key alone requires the label with any value, and `!` that the node does not have it."
    yield ""
    for pool in pools:
        required = _required(pool.pool.nodes)
        pairs = [f"{key}={value}" for key, value in required if value is not None and not is_set_by_a_program(key)]
        if pairs:
            yield f"    kubectl label nodes NODE {' '.join(pairs)}"
        number = "" if pool.nodes is None else f", {pluralize(pool.nodes, 'node')}"
        yield f"    kubectl get nodes --selector {shlex.quote(_selector(pool.pool.nodes))}  # pool {pool.name}{number}"


def _required(nodes: NodeSelector) -> Iterator[tuple[str, str | None]]:
    """Yield the labels that a node needs, each with a value that serves; None: any."""
    yield from nodes.match_labels
    for expression in nodes.match_expressions:
        if expression.operator is Operator.IN:
            yield expression.key, expression.values[0]
        elif expression.operator is Operator.EXISTS:
            yield expression.key, None


def _selector(nodes: NodeSelector) -> str:
    """Return the labels that a pool requires as kubectl reads them."""
    expressions = [_IN_WORDS[one.operator].format(key=one.key, values=",".join(one.values)) for one in nodes.match_expressions]
    return ",".join([*(f"{key}={value}" for key, value in nodes.match_labels), *expressions])


class ChartRelease(Struct):
    """A chart that the bundle installs. `stack`: as the catalogue names it; a stack's values are in a folder of that name."""

    stack: str
    chart: UpstreamChart
    version: str
    namespace: str
    repository: str
    has_null: bool = False


def releases(plan: Plan) -> Iterator[ChartRelease]:
    """Yield the platform's stack, then the DRA driver, as far as the bundle installs them."""
    platform = plan.intent.platform
    if gitops.installs_upstream(plan.intent):
        chart = upstream.chart(platform.stack.value)
        yield ChartRelease(
            stack=platform.stack.value,
            chart=chart,
            version=platform.version or chart.version,
            namespace=plan.intent.plugin_namespace,
            repository=platform.charts or chart.repository,
            has_null=renders_null(plan),
        )
    if plan.intent.installs_dra_driver:
        dra, chart = platform.of_dra, upstream.chart(upstream.DRA)
        yield ChartRelease(
            stack=upstream.DRA,
            chart=chart,
            version=dra.version or chart.version,
            namespace=dra.namespace,
            repository=platform.charts or chart.repository,
        )


def renders_null(plan: Plan) -> bool:
    """Return whether the operator's `mig.strategy` is empty: its chart then renders a null, which server-side apply refuses."""
    return plan.intent.platform.stack is NvidiaStack.GPU_OPERATOR and plan.operator_mig_strategy is None


def upgrade(plan: Plan, file: str, *options: str) -> Iterator[str]:
    """Yield the lines that install the chart, or upgrade it, with one of the bundle's files of values for it."""
    platform = plan.intent.platform
    chart = upstream.chart(platform.stack.value)
    where = chart.helm_reference(platform.charts)
    yield f"    helm upgrade --install {chart.name} {where} --version {platform.version or chart.version} \\"
    shown = "".join(f" {option}" for option in options)
    yield f"      --namespace {plan.intent.plugin_namespace} --values {platform.stack.value}/{file} --timeout 10m{shown}"


def vm_labels(plan: Plan) -> Iterator[str]:
    """Yield the step of the installation that gives the nodes to virtual machines."""
    if not plan.vm_pools:
        return
    manager = plan.intent.platform.vgpu_manager
    if manager:
        yield f"Nodes pull NVIDIA's vGPU manager as `{manager.repository}/{manager.image or 'vgpu-manager'}:{manager.version}`,"
        yield "with the node's system at the end of the tag, such as `-ubuntu22.04`. NVIDIA's licence keeps it private: build"
        yield "it from the licensed driver (NVIDIA's gpu-driver-container, `make build-vgpuhost-ubuntu22.04`)."
    yield "Each node must be bare metal, with IOMMU and SR-IOV enabled and a kernel older than 6.0. Wait until its label"
    yield "`gpushare.dev/pool` is gone, and shut down its virtual machines with vGPUs: nothing drains them. Then label it:"
    yield ""
    for pool in plan.vm_pools:
        pairs = " ".join(f"{key}={value}" for key, value in pool.labels.items())
        yield f"    kubectl label nodes NODE --overwrite {pairs}  # pool {pool.name}"
    yield ""
    yield from (_state(pool) for pool in plan.vm_pools[:1])
    yield ""
    yield "prints `success` for a node that has its vGPUs."


def _state(pool: VmPool) -> str:
    key = pool.vendor.vgpu_label
    return f"    kubectl get nodes --selector {key} --label-columns {key},{key}.state"


def vm_leaving(plan: Plan) -> Iterator[str]:
    """Yield the commands after which the nodes have the same vGPUs by NVIDIA's own configs, which are named as the types."""
    for pool in plan.vm_pools:
        key = pool.vendor.vgpu_label
        yield f"kubectl label nodes --overwrite --selector {key}={pool.config.name} {key}={pool.kind.name}"
