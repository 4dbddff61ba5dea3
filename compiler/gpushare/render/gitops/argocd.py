"""`argocd/`: the objects with which Argo CD syncs the bundle from Git.

One Application for each part, in waves: the namespace and the rights to release nodes, NVIDIA's charts, ours. NVIDIA's are
before ours, because Argo CD deletes in the reverse order, and nodes can only be released while the operator's driver is still
there, and while the DRA driver serves the claims that are left. A root Application syncs the others, so a new version of a
chart of NVIDIA's needs no command.
"""

import json
import shlex
from collections.abc import Iterator
from functools import cached_property

from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.intent.types import DraVia, NvidiaStack
from gpushare.render.gitops.tool import Inputs, Object, Tool
from gpushare.render.steps import installing, leaving
from gpushare.render.steps.installing import ChartRelease
from gpushare.vendors.nvidia import NVIDIA

VERSION = "argoproj.io/v1alpha1"
FINALIZER = "resources-finalizer.argocd.argoproj.io"
"""Argo CD deletes an Application's objects only if the Application has it."""
_HOOK_FINALIZERS = ("post-delete-finalizer.argocd.argoproj.io", "post-delete-finalizer.argocd.argoproj.io/cleanup")
"""Argo CD adds them to an Application with a PostDelete hook, as our chart is. The root would remove them, again and again."""

_RBAC = "rbac.authorization.k8s.io"
_UNINSTALL = "gpushare-uninstall"
"""The name of the chart's hook, of its ServiceAccount and of what that may do."""

_COMPARED = {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}
"""Argo CD asks the API server what an apply would change: defaults that a CRD fills in are then no difference."""
_WAVE = "argocd.argoproj.io/sync-wave"
_RETRY = {"limit": 5, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "3m"}}
"""Where Argo CD does not wait for the health of Applications, the first sync of a chart may come before the namespace."""

_OUR_CLUSTER_KINDS = (
    *(
        ("admissionregistration.k8s.io", f"{kind}AdmissionPolicy{part}")
        for kind in ("Mutating", "Validating")
        for part in ("", "Binding")
    ),
    (_RBAC, "ClusterRole"),
    (_RBAC, "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
)
_DEFINITIONS = ("apiextensions.k8s.io", "CustomResourceDefinition")
_DEVICE_CLASSES = ("resource.k8s.io", "DeviceClass")
_NVIDIA_CLUSTER_KINDS = (
    _DEFINITIONS,
    ("nfd.k8s-sigs.io", "NodeFeatureRule"),
    *((NVIDIA.domain, kind) for kind in NVIDIA.cluster_kinds),
)


# Health checks in Lua, of kinds whose state Argo CD does not see by itself. Its Lua has no string functions. A check replaces
# that of Argo CD for every object of the kind, so that of DaemonSets repeats it: gitops-engine, pkg/health/health_daemonset.go.
_CLUSTER_POLICY = """\
hs = {status = "Progressing", message = "waiting for the operator"}
if obj.status ~= nil and obj.status.state ~= nil then
  hs.message = obj.status.state
  if obj.status.state == "ready" then
    hs.status = "Healthy"
  elseif obj.status.state == "disabled" or obj.status.state == "ignored" then
    hs.status = "Suspended"
  end
end
return hs
"""

_DAEMON_SET = """\
hs = {status = "Progressing", message = "waiting for the controller of DaemonSets"}
local status = obj.status or {}
if (status.observedGeneration or 0) < obj.metadata.generation then
  return hs
end
local wanted = status.desiredNumberScheduled or 0
local updated, available = status.updatedNumberScheduled or 0, status.numberAvailable or 0
local strategy = obj.spec.updateStrategy or {}
if strategy.type == "OnDelete" or (updated >= wanted and available >= wanted) then
  hs.status = "Healthy"
  hs.message = updated .. " of " .. wanted .. " pods are updated, " .. available .. " are available"
  return hs
end
hs.message = "waiting for " .. wanted .. " pods: " .. updated .. " are updated, " .. available .. " are available"
local annotations = obj.spec.template.metadata.annotations or {}
local policy = annotations["gpushare.dev/policy"]
for _, condition in ipairs(status.conditions or {}) do
  if policy ~= nil and condition.type == "GPUShareReady." .. policy then
    hs.status = "Degraded"
    hs.message = condition.reason .. ": " .. condition.message
  end
end
return hs
"""

_DETACHED = '{"metadata": {"finalizers": null}}'
"""Of the root Application: its deletion then leaves what it installed."""


class ArgoCd(Tool):
    """The Applications, the project and the health checks."""

    key = "argocd"

    def objects(self, inputs: Inputs) -> Iterator[tuple[str, Object]]:
        yield "argocd/root.yaml", self._root()
        yield "argocd/apps/namespace.yaml", self._namespace()
        yield "argocd/apps/rights.yaml", self._rights()
        for item in self._release_rights(inputs):
            yield f"argocd/rights/{item['kind'].lower()}.yaml", item
        yield "argocd/apps/gpushare.yaml", self._gpushare()
        for release in installing.releases(self.plan):
            values = inputs.driver_values if release.stack == upstream.DRA else None
            yield f"argocd/apps/{release.chart.name}.yaml", self._nvidia(release, values)
        if self.settings["project"] != "default":
            yield "argocd/project.yaml", self._project(has_claims=inputs.has_claims)
        if self._checks:
            yield "argocd/argocd-cm.yaml", self._customization()

    def section(self) -> Iterator[str]:
        yield from ("## Argo CD", "", "Instead of the commands above. Once, after the bundle is in the repository:", "")
        if self.settings["project"] != "default":
            yield "    kubectl apply -f argocd/project.yaml"
        yield "    kubectl apply -f argocd/root.yaml"
        yield ""
        if self.settings["project"] != "default":
            yield f"`project.yaml` is project `{self.settings['project']}` with the least rights; leave it out if it exists."
        name = self.name()
        yield f"Application `{name}` syncs the others from `argocd/apps/`, from then on every commit. It belongs to project"
        yield "`default`, because it writes Applications; without the right to that, apply the files of `argocd/apps/` instead."
        if self._checks:
            yield from (
                "",
                "So that an Application is `Degraded`, with the reason, where a node fails, merge these health checks",
            )
            yield from ("into the configuration of Argo CD:", "")
            yield "    kubectl apply --server-side -f argocd/argocd-cm.yaml"
        does = leaving.released(self.plan)
        if self.plan.has_nvidia:
            charts = "charts, if they are" if self.plan.dra_pools else "chart, if it is"
            does = f"waits for the GPUs' tenants, {does} and removes NVIDIA's {charts} in `argocd/apps/`"
        if self.plan.intent.observes:
            does = "removes condition and annotation"
        yield from ("", f"Deleting the Application {does}.")
        yield from (f"{leaving.staying(self.plan)}:", "")
        yield f"    {self.kubectl} delete application {name}"
        if not self.plan.intent.observes:
            yield from ("", "It ends when no node has a pool's label any more:", "")
            yield "    kubectl get nodes --selector gpushare.dev/pool"
        if gitops.installs_upstream(self.plan.intent):
            yield from (
                "",
                "Then delete what stayed of the plugin's configuration:",
                "",
                f"    {leaving.delete_config_maps(self.plan)}",
            )
        yield ""

    def _root(self) -> Object:
        """Return the Application of the other Applications, which are where Argo CD itself is."""
        return self._application("", wave=None) | {
            "spec": {
                "project": "default",
                "source": self._source("argocd/apps"),
                "destination": {"server": gitops.IN_CLUSTER, "namespace": self.namespace},
                "syncPolicy": {"automated": {"prune": True, "selfHeal": True}, "retry": _RETRY},
            }
        }

    def _namespace(self) -> Object:
        """Return the Application of the namespaces. It never deletes them: other objects may be in them."""
        first, *others = gitops.namespaces(self.plan.intent)
        include = f"{{{','.join((first, *others))}}}" if others else first
        source = self._source(".") | {"directory": {"include": include}}
        application = self._application("namespace", wave=0, cascades=False)
        return _compared(application) | {"spec": self._spec({"source": source}, shared=True)}

    def _rights(self) -> Object:
        """Return the Application of what the hook of our chart needs and cannot bring: the chart is deleted before it."""
        source = self._source("argocd/rights")
        return _compared(self._application("rights", wave=0)) | {"spec": self._spec({"source": source})}

    def _release_rights(self, inputs: Inputs) -> Iterator[Object]:
        """Yield the ClusterRole with which nodes are released after Argo CD has deleted the chart, its binding, and its fence.

        The chart cannot bring them: Argo CD finds no cluster-scoped hook again. The ServiceAccount exists only while the hook
        runs. No pod is evicted: without the ConfigMap `gpushare-tenancy` it is unknown which may be.
        """
        fence = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "gpushare-fence-uninstall"}}
        yield {**fence, "kind": "ValidatingAdmissionPolicy", "spec": inputs.fence}
        binding = {"policyName": "gpushare-fence-uninstall", "validationActions": ["Deny"]}
        yield {**fence, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}
        may: dict[str, list[str]] = (
            {"nodes": ["get", "list"], "nodes/status": ["patch"]}
            if self.plan.intent.observes
            else {
                "nodes": ["get", "list", "patch", "watch"],
                "nodes/status": ["patch"],
                "pods": ["list", "watch"],
                "events": ["create", "patch"],
            }
        )
        rules = [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in may.items()]
        if inputs.has_claims and not self.plan.intent.observes:
            # What of a node's GPUs the DRA driver still offers, before the device plugin gets them back, and to whom it gave
            # them.
            for resource, verbs in (("resourceslices", ["get", "list"]), ("resourceclaims", ["get"])):
                rules.append({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs})
        metadata = {"name": _UNINSTALL}
        yield {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _UNINSTALL},
            "subjects": [{"kind": "ServiceAccount", "name": _UNINSTALL, "namespace": self.plan.intent.namespace}],
        }

    def _gpushare(self) -> Object:
        helm = {"releaseName": "gpushare", "valuesObject": {"uninstall": {"hook": "argocd"}}}
        source = self._source("chart") | {"helm": helm}
        application = self._application("gpushare", wave=2)
        application["metadata"]["finalizers"] += _HOOK_FINALIZERS
        return _compared(application) | {"spec": self._spec({"source": source})}

    def _nvidia(self, release: ChartRelease, values: Object | None) -> Object:
        """Return the Application of a chart of NVIDIA's, with these values or, if there are none, those of the bundle's file.

        Without one `mig.strategy` the operator's chart renders a null, which server-side apply refuses. A bundle that changes
        to observing no longer has this Application, and must leave the drivers and the plugin where they are. A bundle without
        a pool of DRA has none of its driver, which the nodes leave one after the other. So it is never pruned. The driver's has
        its values itself, because the bundle's file is gone then.
        """
        chart: Object = {
            "repoURL": _address(release),
            "chart": release.chart.name,
            "targetRevision": release.version,
            "helm": {"releaseName": release.chart.name},
        }
        if values is None:
            file = gitops.in_repository(self.settings["path"], f"{release.stack}/values.yaml")
            chart["helm"] |= {"valueFiles": [f"$values/{file}"]}
            of_values = {
                "repoURL": self.settings["repoURL"],
                "targetRevision": self.settings["targetRevision"],
                "ref": "values",
            }
            sources: Object = {"sources": [chart, of_values]}
        else:
            chart["helm"] |= {"valuesObject": values}
            sources = {"source": chart}
        spec = self._spec(sources, server_side=not release.has_null)
        spec["destination"]["namespace"] = release.namespace
        application = self._application(release.chart.name, wave=1)
        application["metadata"]["annotations"] |= {"argocd.argoproj.io/sync-options": "Prune=false"}
        return (application if release.has_null else _compared(application)) | {"spec": spec}

    def _application(self, part: str, *, wave: int | None, cascades: bool = True) -> Object:
        metadata: Object = {"name": self.name(part), "namespace": self.namespace}
        if wave is not None:
            metadata["annotations"] = {_WAVE: str(wave)}
        if cascades:
            metadata["finalizers"] = [FINALIZER]
        return {"apiVersion": VERSION, "kind": "Application", "metadata": metadata}

    def _spec(self, sources: Object, *, server_side: bool = True, shared: bool = False) -> Object:
        """Return an Application's spec. `shared`: its objects may be another Application's as well, and are never pruned."""
        options = () if shared else ("FailOnSharedResource=true",)
        return {
            "project": self.settings["project"],
            **sources,
            "destination": {"server": self.settings["server"], "namespace": self.plan.intent.namespace},
            "syncPolicy": {
                "automated": {"prune": not shared, "selfHeal": True},
                "syncOptions": [*options, f"ServerSideApply={str(server_side).lower()}"],
                "retry": _RETRY,
            },
        }

    def _source(self, inside: str) -> Object:
        """Return a folder of the bundle as a source."""
        path = gitops.in_repository(self.settings["path"], inside)
        return {"repoURL": self.settings["repoURL"], "targetRevision": self.settings["targetRevision"], "path": path}

    def _project(self, *, has_claims: bool) -> Object:
        """Return the AppProject with the least rights: no Node, no other repository, namespaces with objects of ours alone.

        A DRA driver that served nodes keeps its rights: without them Argo CD would leave its objects, and our classes, behind.
        """
        repositories, kinds = {self.settings["repoURL"]}, {("", "Namespace"), *_OUR_CLUSTER_KINDS}
        releases = tuple(installing.releases(self.plan))
        repositories |= {_address(release) for release in releases}
        if gitops.installs_upstream(self.plan.intent):
            kinds |= {*_NVIDIA_CLUSTER_KINDS}
        filled = {
            *(quota.namespace for quota in self.plan.quotas),
            *(name for pool in self.plan.dra_pools for name in pool.pool.namespaces),
        }
        namespaces = {self.plan.intent.namespace, self.plan.intent.plugin_namespace, *filled}
        if has_claims:
            kinds.add(_DEVICE_CLASSES)
        platform = self.plan.intent.platform
        if has_claims and platform.of_dra.via is DraVia.CHART:
            kinds.add(_DEFINITIONS)
            namespaces.add(platform.of_dra.namespace)
            repositories.add((platform.charts or upstream.chart(upstream.DRA).repository).removeprefix(upstream.OCI))
        return {
            "apiVersion": VERSION,
            "kind": "AppProject",
            "metadata": {"name": self.settings["project"], "namespace": self.namespace},
            "spec": {
                "description": f"GPUs of {self.plan.intent.name}",
                "sourceRepos": [self.settings["repoURL"], *sorted(repositories - {self.settings["repoURL"]})],
                "destinations": [
                    {"server": self.settings["server"], "namespace": namespace} for namespace in sorted(namespaces)
                ],
                "clusterResourceWhitelist": [{"group": group, "kind": kind} for group, kind in sorted(kinds)],
            },
        }

    def _customization(self) -> Object:
        """Return the health checks as what to merge into Argo CD's ConfigMap."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "argocd-cm",
                "namespace": self.namespace,
                "labels": {"app.kubernetes.io/part-of": "argocd"},
            },
            "data": {f"resource.customizations.health.{kind}": check for kind, check in self._checks.items()},
        }

    @cached_property
    def _checks(self) -> dict[str, str]:
        """The health check of each kind, as `<group>_<kind>`.

        A DaemonSet is Degraded while it is not available and its status says of its present policy that a node fails: the node
        runtime writes that. A bundle that observes fails nowhere.
        """
        found = {} if self.plan.intent.observes else {"apps_DaemonSet": _DAEMON_SET}
        if gitops.installs_upstream(self.plan.intent) and self.plan.intent.platform.stack is NvidiaStack.GPU_OPERATOR:
            found[f"{NVIDIA.domain}_ClusterPolicy"] = _CLUSTER_POLICY
        return found

    def restore(self, values: str) -> str:
        path = gitops.in_repository(self.settings["path"], values)
        change = {"op": "replace", "path": "/spec/sources/0/helm/valueFiles/0", "value": f"$values/{path}"}
        return f"{self.kubectl} patch application {self.chart()} --type json --patch {shlex.quote(json.dumps([change]))}"

    def remove(self) -> Iterator[str]:
        yield f"{self.kubectl} patch application {self.name()} --type merge --patch '{_DETACHED}'"
        yield f"{self.kubectl} delete application {self.name()}"
        yield f"{self.kubectl} delete application {self.name('gpushare')}"
        yield f"{self.kubectl} delete application {self.name('rights')} {self.name('namespace')}"

    def rest(self) -> Iterator[str]:
        project = self.settings["project"]
        its = f"AppProject `{project}`" if project != "default" else ""
        if gitops.installs_upstream(self.plan.intent):
            needs = f", and {its}" if its else ""
            yield f"Application `{self.chart()}` stays, as NVIDIA's chart does."
            yield from (f"Keep what it needs: the bundle in the repository{needs}.", "")
        elif its:
            yield from (f"{its} stays. Delete it, if no other Application belongs to it.", "")


def _compared(application: Object) -> Object:
    """Return an Application that asks for a server-side diff, which the API server refuses where the chart renders a null."""
    application["metadata"]["annotations"] |= _COMPARED
    return application


def _address(release: ChartRelease) -> str:
    """Return the address of the chart's repository as Argo CD writes it: that of a registry has no scheme."""
    return release.repository.removeprefix(upstream.OCI)
