"""The command of Helm for NVIDIA's chart, and the charts of NVIDIA's that a tool of GitOps installs."""

from collections.abc import Iterator

from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.upstream import UpstreamChart
from gpushare.intent import gitops
from gpushare.intent.types import NvidiaStack
from gpushare.resolved.plan import Plan
from gpushare_node.contract.struct import Struct


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
