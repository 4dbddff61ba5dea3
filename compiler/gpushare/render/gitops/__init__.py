"""The tools that sync a bundle from Git: a module each, registered here."""

from gpushare.render.gitops.argocd import ArgoCd
from gpushare.render.gitops.flux import Flux
from gpushare.render.gitops.tool import Tool
from gpushare.resolved.plan import Plan

TOOLS: tuple[type[Tool], ...] = (ArgoCd, Flux)


def every(plan: Plan) -> tuple[Tool, ...]:
    """Return all tools that the intent names."""
    return tuple(tool(plan) for tool in TOOLS if tool.key in plan.intent.gitops)


def of(plan: Plan) -> Tool | None:
    """Return the tool whose commands remove the bundle, the last of several; None if Helm installs it."""
    return next(reversed(every(plan)), None)
