"""Rules on what a bundle does not do for NVIDIA's DRA driver: GS776."""

from collections.abc import Iterator

from gpushare.core.diagnostics import Finding, Severity
from gpushare.intent.gitops import TOOLS
from gpushare.rules.rule import Rule, RuleContext


def check_gitops(context: RuleContext) -> Iterator[Finding]:
    """GS776: a chart that no GitOps tool installs."""
    intent = context.intent
    if not intent.installs_dra_driver:
        return
    for tool in intent.gitops:
        yield Finding(
            code="GS776",
            severity=Severity.WARNING,
            message=f"the bundle has no {TOOLS[tool].installs} for the chart of NVIDIA's DRA driver",
            hints=(
                "install it by Helm, as the bundle's README says, or write one by hand and dra: {via: existing}",
                "its values are in dra-driver-nvidia-gpu/values.yaml of the bundle",
            ),
            path=("spec", "gitops", tool),
            on_key=True,
        )


RULES = (Rule(code="GS776", check=check_gitops),)
