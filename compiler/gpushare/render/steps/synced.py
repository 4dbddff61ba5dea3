"""What a person does to the objects of the GitOps tool that synced a bundle, to remove gpushare and keep NVIDIA's chart."""

import json
import shlex
from collections.abc import Iterator

from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.resolved.plan import Plan

_DETACHED = '{"metadata": {"finalizers": null}}'
"""Of the root Application: its deletion then leaves what it installed."""


class _Synced:
    """The objects of a tool; `key` is the tool's in the intent.

    `restore` returns the command that gives NVIDIA's chart this file of the bundle as its values; `remove` yields those that
    remove our chart and leave NVIDIA's, `rest` what becomes of the other objects.
    """

    key: str

    def __init__(self, plan: Plan) -> None:
        self.plan, self.settings = plan, gitops.settings(plan.intent, self.key)
        self.name = gitops.object_name(plan.intent, self.key)
        self.kubectl = f"kubectl --namespace {self.settings['namespace']}"

    def chart(self) -> str:
        """Return the name of the object that installs the chart of the platform's stack."""
        return f"{self.name}-{upstream.chart(self.plan.intent.platform.stack.value).name}"


class _Flux(_Synced):
    key = "flux"

    def restore(self, values: str) -> str:
        made = f"create configmap {self.chart()} --from-file values.yaml={values} --dry-run=client --output yaml"
        return f"{self.kubectl} {made} | kubectl apply --server-side --force-conflicts --filename -"

    def remove(self) -> Iterator[str]:
        yield f"{self.kubectl} delete kustomization {self.name}"

    def rest(self) -> Iterator[str]:
        yield from ("Delete the source when HelmRelease gpushare is gone; NVIDIA's needs it no more:", "")
        yield from (f"    {self.kubectl} delete gitrepository {self.name}", "")


class _ArgoCd(_Synced):
    key = "argocd"

    def restore(self, values: str) -> str:
        path = gitops.in_repository(self.settings["path"], values)
        change = {"op": "replace", "path": "/spec/sources/0/helm/valueFiles/0", "value": f"$values/{path}"}
        return f"{self.kubectl} patch application {self.chart()} --type json --patch {shlex.quote(json.dumps([change]))}"

    def remove(self) -> Iterator[str]:
        yield f"{self.kubectl} patch application {self.name} --type merge --patch '{_DETACHED}'"
        yield f"{self.kubectl} delete application {self.name}"
        yield f"{self.kubectl} delete application {self.name}-gpushare"
        yield f"{self.kubectl} delete application {self.name}-rights {self.name}-namespace"

    def rest(self) -> Iterator[str]:
        project = self.settings["project"]
        its = f"AppProject `{project}`" if project != "default" else ""
        if gitops.installs_upstream(self.plan.intent):
            needs = f", and {its}" if its else ""
            yield f"Application `{self.chart()}` stays, as NVIDIA's chart does."
            yield from (f"Keep what it needs: the bundle in the repository{needs}.", "")
        elif its:
            yield from (f"{its} stays. Delete it, if no other Application belongs to it.", "")


SYNCED: tuple[type[_Flux | _ArgoCd], ...] = (_Flux, _ArgoCd)
"""One for each of `gitops.TOOLS`."""


def of(plan: Plan) -> _Flux | _ArgoCd | None:
    """Return the objects of the tool that the intent names; None if Helm installs the bundle."""
    return next((tool(plan) for tool in SYNCED if tool.key in plan.intent.gitops), None)
