"""`argocd/`: the objects with which Argo CD syncs the bundle from Git; nothing if the intent does not ask for them.

One Application for each part, in waves: the namespace and the rights to release nodes, NVIDIA's charts, ours. NVIDIA's are
before ours, because Argo CD deletes in the reverse order, and nodes can only be released while the operator's driver is still
there, and while the DRA driver serves the claims that are left. A root Application syncs the others, so a new version of a
chart of NVIDIA's needs no command.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.facts.catalog import upstream
from gpushare.facts.vendors.nvidia import NVIDIA
from gpushare.intent import gitops
from gpushare.intent.types import DraVia
from gpushare.render.steps import leaving, nvidia_release
from gpushare.render.steps.nvidia_release import Release
from gpushare.resolved.plan import Plan

Object = dict[str, Any]

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


def objects(plan: Plan, checks: Mapping[str, str], driver_values: Object, *, has_claims: bool) -> Iterator[tuple[str, Object]]:
    """Yield the path in the bundle and the object of each file. `checks` are the health checks by kind, as `<group>_<kind>`.

    `driver_values`: of the DRA driver's chart. `has_claims`: NVIDIA's DRA driver serves nodes, or did.
    """
    if "argocd" not in plan.intent.gitops:
        return
    settings = gitops.settings(plan.intent, "argocd")
    yield "argocd/root.yaml", _root(plan, settings)
    yield "argocd/apps/namespace.yaml", _namespace(plan, settings)
    yield "argocd/apps/rights.yaml", _rights(plan, settings)
    for item in _release_rights(plan, has_claims=has_claims):
        yield f"argocd/rights/{item['kind'].lower()}.yaml", item
    yield "argocd/apps/gpushare.yaml", _gpushare(plan, settings)
    for release in nvidia_release.releases(plan):
        values = driver_values if release.stack == upstream.DRA else None
        yield f"argocd/apps/{release.chart.name}.yaml", _nvidia(plan, settings, release, values)
    if settings["project"] != "default":
        yield "argocd/project.yaml", _project(plan, settings, has_claims=has_claims)
    if checks:
        yield "argocd/argocd-cm.yaml", _customization(settings, checks)


def section(plan: Plan, checks: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the bundle's README.md on Argo CD."""
    if "argocd" not in plan.intent.gitops:
        return
    settings = gitops.settings(plan.intent, "argocd")
    namespace, name = settings["namespace"], gitops.object_name(plan.intent, "argocd")
    yield from ("## Argo CD", "", "Instead of the commands above. Once, after the bundle is in the repository:", "")
    if settings["project"] != "default":
        yield "    kubectl apply -f argocd/project.yaml"
    yield "    kubectl apply -f argocd/root.yaml"
    yield ""
    if settings["project"] != "default":
        yield f"`project.yaml` is project `{settings['project']}` with the least rights; leave it out if it exists."
    yield f"Application `{name}` syncs the others from `argocd/apps/`, from then on every commit. It belongs to project"
    yield "`default`, because it writes Applications; without the right to that, apply the files of `argocd/apps/` instead."
    if checks:
        yield from ("", "So that an Application is `Degraded`, with the reason, where a node fails, merge these health checks")
        yield from ("into the configuration of Argo CD:", "")
        yield "    kubectl apply --server-side -f argocd/argocd-cm.yaml"
    does = leaving.released(plan)
    if plan.has_nvidia:
        charts = "charts, if they are" if plan.dra_pools else "chart, if it is"
        does = f"waits for the GPUs' tenants, {does} and removes NVIDIA's {charts} in `argocd/apps/`"
    if plan.intent.observes:
        does = "removes condition and annotation"
    yield from ("", f"Deleting the Application {does}.")
    yield from (f"{leaving.staying(plan)}:", "")
    yield f"    kubectl --namespace {namespace} delete application {name}"
    if not plan.intent.observes:
        yield from ("", "It ends when no node has a pool's label any more:", "")
        yield "    kubectl get nodes --selector gpushare.dev/pool"
    if gitops.installs_upstream(plan.intent):
        yield from ("", "Then delete what stayed of the plugin's configuration:", "", f"    {leaving.delete_config_maps(plan)}")
    yield ""


def _root(plan: Plan, settings: Mapping[str, str]) -> Object:
    """Return the Application of the other Applications, which are where Argo CD itself is."""
    return _application(plan, settings, "", wave=None) | {
        "spec": {
            "project": "default",
            "source": _source(settings, "argocd/apps"),
            "destination": {"server": gitops.IN_CLUSTER, "namespace": settings["namespace"]},
            "syncPolicy": {"automated": {"prune": True, "selfHeal": True}, "retry": _RETRY},
        }
    }


def _namespace(plan: Plan, settings: Mapping[str, str]) -> Object:
    """Return the Application of the namespaces. It never deletes them: other objects may be in them."""
    first, *others = gitops.namespaces(plan.intent)
    include = f"{{{','.join((first, *others))}}}" if others else first
    source = _source(settings, ".") | {"directory": {"include": include}}
    application = _application(plan, settings, "namespace", wave=0, cascades=False)
    return _compared(application) | {"spec": _spec(plan, settings, {"source": source}, shared=True)}


def _rights(plan: Plan, settings: Mapping[str, str]) -> Object:
    """Return the Application of what the hook of our chart needs and cannot bring: the chart is deleted before it."""
    source = _source(settings, "argocd/rights")
    return _compared(_application(plan, settings, "rights", wave=0)) | {"spec": _spec(plan, settings, {"source": source})}


def _release_rights(plan: Plan, *, has_claims: bool) -> Iterator[Object]:
    """Yield the ClusterRole with which nodes are released after Argo CD has deleted the chart, and its binding.

    The chart cannot bring them: Argo CD finds no cluster-scoped hook again. The ServiceAccount exists only while the hook runs.
    No pod is evicted: without the ConfigMap `gpushare-tenancy` it is unknown which may be.
    """
    may: dict[str, list[str]] = (
        {"nodes": ["get", "list"], "nodes/status": ["patch"]}
        if plan.intent.observes
        else {
            "nodes": ["get", "list", "patch", "watch"],
            "nodes/status": ["patch"],
            "pods": ["list", "watch"],
            "events": ["create", "patch"],
        }
    )
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in may.items()]
    if has_claims and not plan.intent.observes:
        # What of a node's GPUs the DRA driver still offers, before the device plugin gets them back, and to whom it gave them.
        for resource, verbs in (("resourceslices", ["get", "list"]), ("resourceclaims", ["get"])):
            rules.append({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs})
    metadata = {"name": _UNINSTALL}
    yield {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _UNINSTALL},
        "subjects": [{"kind": "ServiceAccount", "name": _UNINSTALL, "namespace": plan.intent.namespace}],
    }


def _gpushare(plan: Plan, settings: Mapping[str, str]) -> Object:
    helm = {"releaseName": "gpushare", "valuesObject": {"uninstall": {"hook": "argocd"}}}
    source = _source(settings, "chart") | {"helm": helm}
    application = _application(plan, settings, "gpushare", wave=2)
    application["metadata"]["finalizers"] += _HOOK_FINALIZERS
    return _compared(application) | {"spec": _spec(plan, settings, {"source": source})}


def _nvidia(plan: Plan, settings: Mapping[str, str], release: Release, values: Object | None) -> Object:
    """Return the Application of a chart of NVIDIA's, with these values or, if there are none, those of the bundle's file.

    Without one `mig.strategy` the operator's chart renders a null, which server-side apply refuses. A bundle that changes to
    observing no longer has this Application, and must leave the drivers and the plugin where they are. A bundle without a pool
    of DRA has none of its driver, which the nodes leave one after the other. So it is never pruned. The driver's has its values
    itself, because the bundle's file is gone then.
    """
    chart: Object = {
        "repoURL": _address(release),
        "chart": release.chart.name,
        "targetRevision": release.version,
        "helm": {"releaseName": release.chart.name},
    }
    if values is None:
        file = gitops.in_repository(settings["path"], f"{release.stack}/values.yaml")
        chart["helm"] |= {"valueFiles": [f"$values/{file}"]}
        of_values = {"repoURL": settings["repoURL"], "targetRevision": settings["targetRevision"], "ref": "values"}
        sources: Object = {"sources": [chart, of_values]}
    else:
        chart["helm"] |= {"valuesObject": values}
        sources = {"source": chart}
    spec = _spec(plan, settings, sources, server_side=not release.has_null)
    spec["destination"]["namespace"] = release.namespace
    application = _application(plan, settings, release.chart.name, wave=1)
    application["metadata"]["annotations"] |= {"argocd.argoproj.io/sync-options": "Prune=false"}
    return (application if release.has_null else _compared(application)) | {"spec": spec}


def _compared(application: Object) -> Object:
    """Return an Application that asks for a server-side diff, which the API server refuses where the chart renders a null."""
    application["metadata"]["annotations"] |= _COMPARED
    return application


def _application(
    plan: Plan,
    settings: Mapping[str, str],
    part: str,
    *,
    wave: int | None,
    cascades: bool = True,
) -> Object:
    name = f"{gitops.object_name(plan.intent, 'argocd')}-{part}".removesuffix("-")
    metadata: Object = {"name": name, "namespace": settings["namespace"]}
    if wave is not None:
        metadata["annotations"] = {_WAVE: str(wave)}
    if cascades:
        metadata["finalizers"] = [FINALIZER]
    return {"apiVersion": VERSION, "kind": "Application", "metadata": metadata}


def _spec(
    plan: Plan,
    settings: Mapping[str, str],
    sources: Object,
    *,
    server_side: bool = True,
    shared: bool = False,
) -> Object:
    """Return an Application's spec. `shared`: its objects may be another Application's as well, and are never pruned."""
    options = () if shared else ("FailOnSharedResource=true",)
    return {
        "project": settings["project"],
        **sources,
        "destination": {"server": settings["server"], "namespace": plan.intent.namespace},
        "syncPolicy": {
            "automated": {"prune": not shared, "selfHeal": True},
            "syncOptions": [*options, f"ServerSideApply={str(server_side).lower()}"],
            "retry": _RETRY,
        },
    }


def _address(release: Release) -> str:
    """Return the address of the chart's repository as Argo CD writes it: that of a registry has no scheme."""
    return release.repository.removeprefix(upstream.OCI)


def _source(settings: Mapping[str, str], inside: str) -> Object:
    """Return a folder of the bundle as a source."""
    path = gitops.in_repository(settings["path"], inside)
    return {"repoURL": settings["repoURL"], "targetRevision": settings["targetRevision"], "path": path}


def _project(plan: Plan, settings: Mapping[str, str], *, has_claims: bool) -> Object:
    """Return the AppProject with the least rights: no Node, no other repository, namespaces with objects of ours alone.

    A DRA driver that served nodes keeps its rights: without them Argo CD would leave its objects, and our classes, behind.
    """
    repositories, kinds = {settings["repoURL"]}, {("", "Namespace"), *_OUR_CLUSTER_KINDS}
    releases = tuple(nvidia_release.releases(plan))
    repositories |= {_address(release) for release in releases}
    if gitops.installs_upstream(plan.intent):
        kinds |= {*_NVIDIA_CLUSTER_KINDS}
    filled = {*(quota.namespace for quota in plan.quotas), *(name for pool in plan.dra_pools for name in pool.pool.namespaces)}
    namespaces = {plan.intent.namespace, plan.intent.plugin_namespace, *filled}
    if has_claims:
        kinds.add(_DEVICE_CLASSES)
    platform = plan.intent.platform
    if has_claims and platform.of_dra.via is DraVia.CHART:
        kinds.add(_DEFINITIONS)
        namespaces.add(platform.of_dra.namespace)
        repositories.add((platform.charts or upstream.chart(upstream.DRA).repository).removeprefix(upstream.OCI))
    return {
        "apiVersion": VERSION,
        "kind": "AppProject",
        "metadata": {"name": settings["project"], "namespace": settings["namespace"]},
        "spec": {
            "description": f"GPUs of {plan.intent.name}",
            "sourceRepos": [settings["repoURL"], *sorted(repositories - {settings["repoURL"]})],
            "destinations": [{"server": settings["server"], "namespace": namespace} for namespace in sorted(namespaces)],
            "clusterResourceWhitelist": [{"group": group, "kind": kind} for group, kind in sorted(kinds)],
        },
    }


def _customization(settings: Mapping[str, str], checks: Mapping[str, str]) -> Object:
    """Return the health checks as what to merge into Argo CD's ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "argocd-cm",
            "namespace": settings["namespace"],
            "labels": {"app.kubernetes.io/part-of": "argocd"},
        },
        "data": {f"resource.customizations.health.{kind}": check for kind, check in checks.items()},
    }
