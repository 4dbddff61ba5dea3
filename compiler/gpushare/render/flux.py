"""`flux/`: the objects with which Flux syncs the bundle from Git; nothing if the intent does not ask for them.

A Kustomization applies the namespace and a HelmRelease for each chart. NVIDIA's are installed first, because nodes become ready
only with their drivers. Flux ignores `dependsOn` when it deletes. So deleting the Kustomization deletes our release alone,
whose hook releases the nodes, and NVIDIA's stay until a person deletes them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.core.units import parse_duration
from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.render.steps import leaving, nvidia_release
from gpushare.render.steps.nvidia_release import Release
from gpushare.resolved.plan import Plan

Object = dict[str, Any]

SOURCES = "source.toolkit.fluxcd.io/v1"
RELEASES = "helm.toolkit.fluxcd.io/v2"
SYNCS = "kustomize.toolkit.fluxcd.io/v1"

_DURATION = r"([0-9]+(\.[0-9]+)?(ms|s|m|h))+\Z"
"""What Flux reads; an intent may write more, such as a sign."""

_TIMEOUT = "10m"
"""Of each action of Helm: more than the hook that releases the nodes takes at most."""
_SYNC_TIMEOUT = "15m"
"""How long a sync waits for the releases, and the deletion of the Kustomization for the end of ours: more than _TIMEOUT."""
_TEST_TIMEOUT = "3m"
_RETRY = {"name": "RetryOnFailure", "retryInterval": "5m"}
"""A failed action is repeated as an upgrade. Flux's other strategy would uninstall, which releases the nodes."""
_KEPT = {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
"""Flux does not delete an object with this annotation, neither when it leaves the repository nor with the Kustomization."""
_WATCHED = {"reconcile.fluxcd.io/watch": "Enabled"}
"""helm-controller upgrades a release at once when values with this label change."""


def objects(
    plan: Plan, namespaces: Mapping[str, Object], upstream_values: str, driver_values: str
) -> Iterator[tuple[str, Object]]:
    """Yield the path in the bundle and the object of each file. `upstream_values`: the text of the values of NVIDIA's chart.

    `namespaces`: by the names of their files. `driver_values`: the text of those of the DRA driver's chart.
    """
    if "flux" not in plan.intent.gitops:
        return
    settings = gitops.settings(plan.intent, "flux")
    yield "flux/source.yaml", _source(plan, settings)
    yield "flux/sync.yaml", _sync(plan, settings)
    apps = {file.removesuffix(".yaml"): _kept(item) for file, item in namespaces.items()}
    apps["gpushare"] = _gpushare(plan, settings)
    for release in nvidia_release.releases(plan):
        prefix, values = ("dra-", driver_values) if release.stack == upstream.DRA else ("", upstream_values)
        apps[release.chart.name] = _nvidia(plan, settings, release)
        apps[f"{prefix}repository"] = _repository(plan, settings, release)
        apps[f"{prefix}values"] = _values(plan, settings, release, values)
    yield (
        "flux/apps/kustomization.yaml",
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{app}.yaml" for app in sorted(apps)],
        },
    )
    for app, item in apps.items():
        yield f"flux/apps/{app}.yaml", item


def section(plan: Plan) -> Iterator[str]:
    """Yield the lines of the bundle's README.md on Flux."""
    if "flux" not in plan.intent.gitops:
        return
    settings, name = gitops.settings(plan.intent, "flux"), gitops.object_name(plan.intent, "flux")
    kubectl = f"    kubectl --namespace {settings['namespace']}"
    yield from ("## Flux", "")
    if "secret" in settings:
        secret, namespace = settings["secret"], settings["namespace"]
        yield from (f"Flux reads the repository with Secret `{secret}` of namespace `{namespace}`, which must exist.", "")
    yield from ("Instead of the commands above. Once, after the bundle is in the repository:", "")
    yield "    kubectl apply -f flux/source.yaml -f flux/sync.yaml"
    yield from ("", f"Kustomization `{name}` applies `flux/apps/`, from then on every commit, and is Ready when it all is:", "")
    yield f"{kubectl} get kustomization,helmrelease"
    yield ""
    does = "removes condition and annotation" if plan.intent.observes else leaving.released(plan)
    yield f"Deleting it {does}. {leaving.staying(plan)}:"
    yield from ("", f"{kubectl} delete kustomization {name}")
    if not plan.intent.observes:
        yield from ("", "It is done when no node has a pool's label, and our HelmRelease is gone:", "")
        yield "    kubectl get nodes --selector gpushare.dev/pool"
        yield f"{kubectl} get helmrelease"
    releases = tuple(nvidia_release.releases(plan))
    if releases:
        yield from ("", "Only then remove NVIDIA's components, if no other workload needs them:", "")
        for release in releases:
            yield f"{kubectl} delete helmrelease,helmrepository,configmap {name}-{release.chart.name}"
    if gitops.installs_upstream(plan.intent):
        yield from ("", "and what stayed of the plugin's configuration:", "", f"    {leaving.delete_config_maps(plan)}")
    yield from ("", "Finally, delete the source:", "", f"{kubectl} delete gitrepository {name}", "")


def _source(plan: Plan, settings: Mapping[str, str]) -> Object:
    spec: Object = {
        "interval": _interval(settings),
        "url": settings["url"],
        "ref": {"branch": settings["branch"]},
    }
    if "secret" in settings:
        spec["secretRef"] = {"name": settings["secret"]}
    return _object(plan, settings, SOURCES, "GitRepository") | {"spec": spec}


def _sync(plan: Plan, settings: Mapping[str, str]) -> Object:
    """Return the Kustomization. Its deletion lasts until our release is gone, whose hook needs what else is on the cluster."""
    return _object(plan, settings, SYNCS, "Kustomization") | {
        "spec": {
            "interval": _interval(settings),
            "retryInterval": "1m",
            "timeout": _SYNC_TIMEOUT,
            "sourceRef": _reference(plan, "GitRepository"),
            "path": f"./{gitops.in_repository(settings['path'], 'flux/apps')}",
            "prune": True,
            "deletionPolicy": "WaitForTermination",
            "wait": True,
        }
    }


def _gpushare(plan: Plan, settings: Mapping[str, str]) -> Object:
    """Return our release. Helm waits for it, so it is Ready when every node is.

    The chart's version is the same in every bundle, so a release has to follow the commit. Its tests take a share of each pool:
    they fail where all are in use, which is no reason to repeat the upgrade, and would make an autoscaler add nodes.
    """
    spec = _release(plan.intent.namespace, settings, "gpushare") | {
        "chart": {
            "spec": {
                "chart": f"./{gitops.in_repository(settings['path'], 'chart')}",
                "sourceRef": _reference(plan, "GitRepository"),
                "reconcileStrategy": "Revision",
            }
        },
        "install": {"strategy": _RETRY},
        "upgrade": {"strategy": _RETRY},
        "driftDetection": {"mode": "enabled"},
    }
    if depends := [{"name": _name(plan, release.chart.name)} for release in nvidia_release.releases(plan)]:
        spec["dependsOn"] = depends
    if not plan.intent.observes and not any(pool.pool.autoscaler for pool in plan.pools):
        spec["test"] = {"enable": True, "ignoreFailures": True, "timeout": _TEST_TIMEOUT}
    return _object(plan, settings, RELEASES, "HelmRelease", "gpushare") | {"spec": spec}


def _nvidia(plan: Plan, settings: Mapping[str, str], release: Release) -> Object:
    """Return the release of a chart of NVIDIA's.

    Helm does not wait for it: the device plugin waits for our ConfigMap, the DRA driver for nodes. Without one `mig.strategy`
    the operator's chart renders a null, which server-side apply refuses. Its operator may write into the chart's objects, so a
    difference is reported and not corrected.
    """
    chart = release.chart
    action: Object = {"crds": "CreateReplace", "disableWait": True, "strategy": _RETRY}
    install, upgrade = dict(action), dict(action)
    if release.has_null:
        install["serverSideApply"], upgrade["serverSideApply"] = False, "disabled"
    spec = _release(release.namespace, settings, chart.name) | {
        "chart": {
            "spec": {
                "chart": chart.name,
                "version": release.version,
                "sourceRef": _reference(plan, "HelmRepository", chart.name),
            }
        },
        "install": install,
        "upgrade": upgrade,
        "driftDetection": {"mode": "warn"},
        "valuesFrom": [{"kind": "ConfigMap", "name": _name(plan, chart.name), "valuesKey": "values.yaml"}],
    }
    return _kept(_object(plan, settings, RELEASES, "HelmRelease", chart.name) | {"spec": spec})


def _repository(plan: Plan, settings: Mapping[str, str], release: Release) -> Object:
    item = _object(plan, settings, SOURCES, "HelmRepository", release.chart.name)
    kind = {"type": "oci"} if release.repository.startswith(upstream.OCI) else {}
    return _kept(item | {"spec": {"interval": "1h", "url": release.repository, **kind}})


def _values(plan: Plan, settings: Mapping[str, str], release: Release, text: str) -> Object:
    """Return the values of the chart as a ConfigMap: Helm reads the very text that is in the bundle."""
    item = _kept(_object(plan, settings, "v1", "ConfigMap", release.chart.name))
    item["metadata"]["labels"] = dict(_WATCHED)
    return item | {"data": {"values.yaml": text}}


def _release(namespace: str, settings: Mapping[str, str], release: str) -> Object:
    """Return what all releases have. Helm's own commands find them where the bundle's README says."""
    return {
        "interval": _interval(settings),
        "timeout": _TIMEOUT,
        "releaseName": release,
        "targetNamespace": namespace,
        "storageNamespace": namespace,
    }


def _interval(settings: Mapping[str, str]) -> str:
    written = settings["interval"]
    return written if re.match(_DURATION, written) else f"{parse_duration(written)}s"


def _name(plan: Plan, part: str = "") -> str:
    return f"{gitops.object_name(plan.intent, 'flux')}-{part}".removesuffix("-")


def _reference(plan: Plan, kind: str, part: str = "") -> Object:
    return {"kind": kind, "name": _name(plan, part)}


def _object(plan: Plan, settings: Mapping[str, str], version: str, kind: str, part: str = "") -> Object:
    metadata: Object = {"name": _name(plan, part), "namespace": settings["namespace"]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _kept(item: Object) -> Object:
    """Return the object with the annotation of those that Flux never deletes."""
    return item | {"metadata": item["metadata"] | {"annotations": dict(_KEPT)}}
