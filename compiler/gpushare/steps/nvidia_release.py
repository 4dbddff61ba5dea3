"""The command of Helm for NVIDIA's chart."""

from collections.abc import Iterator

from gpushare.catalog import upstream
from gpushare.intent.types import Stack
from gpushare.resolved.plan import Plan


def renders_null(plan: Plan) -> bool:
    """Return whether the operator's `mig.strategy` is empty: its chart then renders a null, which server-side apply refuses."""
    return plan.intent.platform.stack is Stack.GPU_OPERATOR and plan.operator_mig_strategy is None


def upgrade(plan: Plan, file: str, *options: str) -> Iterator[str]:
    """Yield the lines that install the chart, or upgrade it, with one of the bundle's files of values for it."""
    platform = plan.intent.platform
    chart = upstream.chart(platform.stack.value)
    where = chart.in_words_of_helm(platform.charts)
    yield f"    helm upgrade --install {chart.name} {where} --version {platform.version or chart.version} \\"
    shown = "".join(f" {option}" for option in options)
    yield f"      --namespace {plan.intent.plugin_namespace} --values {platform.stack.value}/{file} --timeout 10m{shown}"
