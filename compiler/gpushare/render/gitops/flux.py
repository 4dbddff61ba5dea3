"""`flux/`: the objects with which Flux syncs the bundle from Git.

A Kustomization applies the namespace and a HelmRelease for each chart. NVIDIA's are installed first, because nodes become ready
only with their drivers. Flux ignores `dependsOn` when it deletes. So deleting the Kustomization deletes our release alone,
whose hook releases the nodes, and NVIDIA's stay until a person deletes them.
"""

import re
from collections.abc import Iterator

from gpushare.core.units import parse_duration
from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.render.gitops.tool import Inputs, Object, Tool
from gpushare.render.steps import installing, leaving
from gpushare.render.steps.installing import ChartRelease

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


class Flux(Tool):
    """The GitRepository, the Kustomization and the HelmReleases."""

    key = "flux"

    def objects(self, inputs: Inputs) -> Iterator[tuple[str, Object]]:
        yield "flux/source.yaml", self._source()
        yield "flux/sync.yaml", self._sync()
        apps = {file.removesuffix(".yaml"): _kept(item) for file, item in inputs.namespaces.items()}
        apps["gpushare"] = self._gpushare()
        for release in installing.releases(self.plan):
            is_dra = release.stack == upstream.DRA
            prefix, values = ("dra-", inputs.driver_values) if is_dra else ("", inputs.upstream_values)
            apps[release.chart.name] = self._nvidia(release)
            apps[f"{prefix}repository"] = self._repository(release)
            apps[f"{prefix}values"] = self._values(release, inputs.text(values))
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

    def section(self) -> Iterator[str]:
        yield from ("## Flux", "")
        if "secret" in self.settings:
            secret = self.settings["secret"]
            yield from (
                f"Flux reads the repository with Secret `{secret}` of namespace `{self.namespace}`, which must exist.",
                "",
            )
        yield from ("Instead of the commands above. Once, after the bundle is in the repository:", "")
        yield "    kubectl apply -f flux/source.yaml -f flux/sync.yaml"
        yield from (
            "",
            f"Kustomization `{self.name()}` applies `flux/apps/`, from then on every commit, and is Ready when it all is:",
            "",
        )
        yield f"    {self.kubectl} get kustomization,helmrelease"
        yield ""
        does = "removes condition and annotation" if self.plan.intent.observes else leaving.released(self.plan)
        yield f"Deleting it {does}. {leaving.staying(self.plan)}:"
        yield from ("", f"    {self.kubectl} delete kustomization {self.name()}")
        if not self.plan.intent.observes:
            yield from ("", "It is done when no node has a pool's label, and our HelmRelease is gone:", "")
            yield "    kubectl get nodes --selector gpushare.dev/pool"
            yield f"    {self.kubectl} get helmrelease"
        releases = tuple(installing.releases(self.plan))
        if releases:
            yield from ("", "Only then remove NVIDIA's components, if no other workload needs them:", "")
            for release in releases:
                yield f"    {self.kubectl} delete helmrelease,helmrepository,configmap {self.name(release.chart.name)}"
        if gitops.installs_upstream(self.plan.intent):
            yield from (
                "",
                "and what stayed of the plugin's configuration:",
                "",
                f"    {leaving.delete_config_maps(self.plan)}",
            )
        yield from ("", "Finally, delete the source:", "", f"    {self.kubectl} delete gitrepository {self.name()}", "")

    def _source(self) -> Object:
        spec: Object = {
            "interval": self._interval(),
            "url": self.settings["url"],
            "ref": {"branch": self.settings["branch"]},
        }
        if "secret" in self.settings:
            spec["secretRef"] = {"name": self.settings["secret"]}
        return self._object(SOURCES, "GitRepository") | {"spec": spec}

    def _sync(self) -> Object:
        """Return the Kustomization.

        Its deletion lasts until our release is gone, whose hook needs what else is on the cluster.
        """
        return self._object(SYNCS, "Kustomization") | {
            "spec": {
                "interval": self._interval(),
                "retryInterval": "1m",
                "timeout": _SYNC_TIMEOUT,
                "sourceRef": self._reference("GitRepository"),
                "path": f"./{gitops.in_repository(self.settings['path'], 'flux/apps')}",
                "prune": True,
                "deletionPolicy": "WaitForTermination",
                "wait": True,
            }
        }

    def _gpushare(self) -> Object:
        """Return our release. Helm waits for it, so it is Ready when every node is.

        The chart's version is the same in every bundle, so a release has to follow the commit. Its tests take a share of each
        pool: they fail where all are in use, which is no reason to repeat the upgrade, and would make an autoscaler add nodes.
        """
        spec = self._release(self.plan.intent.namespace, "gpushare") | {
            "chart": {
                "spec": {
                    "chart": f"./{gitops.in_repository(self.settings['path'], 'chart')}",
                    "sourceRef": self._reference("GitRepository"),
                    "reconcileStrategy": "Revision",
                }
            },
            "install": {"strategy": _RETRY},
            "upgrade": {"strategy": _RETRY},
            "driftDetection": {"mode": "enabled"},
        }
        if depends := [{"name": self.name(release.chart.name)} for release in installing.releases(self.plan)]:
            spec["dependsOn"] = depends
        if not self.plan.intent.observes and not any(pool.pool.autoscaler for pool in self.plan.pools):
            spec["test"] = {"enable": True, "ignoreFailures": True, "timeout": _TEST_TIMEOUT}
        return self._object(RELEASES, "HelmRelease", "gpushare") | {"spec": spec}

    def _nvidia(self, release: ChartRelease) -> Object:
        """Return the release of a chart of NVIDIA's.

        Helm does not wait for it: the device plugin waits for our ConfigMap, the DRA driver for nodes. Without one
        `mig.strategy` the operator's chart renders a null, which server-side apply refuses. Its operator may write into the
        chart's objects, so a difference is reported and not corrected.
        """
        chart = release.chart
        action: Object = {"crds": "CreateReplace", "disableWait": True, "strategy": _RETRY}
        install, upgrade = dict(action), dict(action)
        if release.has_null:
            install["serverSideApply"], upgrade["serverSideApply"] = False, "disabled"
        spec = self._release(release.namespace, chart.name) | {
            "chart": {
                "spec": {
                    "chart": chart.name,
                    "version": release.version,
                    "sourceRef": self._reference("HelmRepository", chart.name),
                }
            },
            "install": install,
            "upgrade": upgrade,
            "driftDetection": {"mode": "warn"},
            "valuesFrom": [{"kind": "ConfigMap", "name": self.name(chart.name), "valuesKey": "values.yaml"}],
        }
        return _kept(self._object(RELEASES, "HelmRelease", chart.name) | {"spec": spec})

    def _repository(self, release: ChartRelease) -> Object:
        item = self._object(SOURCES, "HelmRepository", release.chart.name)
        kind = {"type": "oci"} if release.repository.startswith(upstream.OCI) else {}
        return _kept(item | {"spec": {"interval": "1h", "url": release.repository, **kind}})

    def _values(self, release: ChartRelease, text: str) -> Object:
        """Return the values of the chart as a ConfigMap: Helm reads the very text that is in the bundle."""
        item = _kept(self._object("v1", "ConfigMap", release.chart.name))
        item["metadata"]["labels"] = dict(_WATCHED)
        return item | {"data": {"values.yaml": text}}

    def _release(self, namespace: str, release: str) -> Object:
        """Return what all releases have. Helm's own commands find them where the bundle's README says."""
        return {
            "interval": self._interval(),
            "timeout": _TIMEOUT,
            "releaseName": release,
            "targetNamespace": namespace,
            "storageNamespace": namespace,
        }

    def _interval(self) -> str:
        written = self.settings["interval"]
        return written if re.match(_DURATION, written) else f"{parse_duration(written)}s"

    def _reference(self, kind: str, part: str = "") -> Object:
        return {"kind": kind, "name": self.name(part)}

    def _object(self, version: str, kind: str, part: str = "") -> Object:
        metadata: Object = {"name": self.name(part), "namespace": self.namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata}

    def restore(self, values: str) -> str:
        made = f"create configmap {self.chart()} --from-file values.yaml={values} --dry-run=client --output yaml"
        return f"{self.kubectl} {made} | kubectl apply --server-side --force-conflicts --filename -"

    def remove(self) -> Iterator[str]:
        yield f"{self.kubectl} delete kustomization {self.name()}"

    def rest(self) -> Iterator[str]:
        yield from ("Delete the source when HelmRelease gpushare is gone; NVIDIA's needs it no more:", "")
        yield from (f"    {self.kubectl} delete gitrepository {self.name()}", "")


def _kept(item: Object) -> Object:
    """Return the object with the annotation of those that Flux never deletes."""
    return item | {"metadata": item["metadata"] | {"annotations": dict(_KEPT)}}
