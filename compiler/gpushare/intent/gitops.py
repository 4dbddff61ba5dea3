"""What the tools that sync a bundle from Git have in common: names, folders and addresses of repositories."""

import re
from collections.abc import Mapping

from gpushare.intent.types import Intent
from gpushare_node.contract.struct import Struct

PLAIN = r"[^\s$\\]+"
"""No tool replaces any of it: `$` begins a variable in Argo CD's paths and in Flux's substitutions."""
REVISION = r"[A-Za-z0-9._/+@~^-]+\Z"
_WITH_CREDENTIALS = r"(?i)\s*(https?://[^/]*@|[a-z]+://[^/]*:(?!\d+/).*@)"
"""A password may have a slash or a blank in it, although an address then means something else; a port has digits alone."""
IN_CLUSTER = "https://kubernetes.default.svc"
"""Argo CD's address of the API server of the cluster that it runs in."""


class ToolFacts(Struct):
    """A tool that syncs a bundle from Git: its files are in the folder of its key, the objects that install in `apps/` there.

    `applied` are the files that the tool does not sync, in the order in which a person applies them: the last has the root, the
    object that syncs the others. `merged` are those of them that add to an object of the tool's own; `named` those with the
    root's name. `installs` is the kind of the objects whose deletion removes what they installed (of those with a
    finalizer, if `by_finalizer`), unless an annotation has the value `kept`. `detach` says how a person removes the objects
    alone. `of_chart` are the kinds that the tool has for an upstream chart, all by one name. `repository` and `revision` are
    fields of the intent, `defaults` their values where it has none, as its schema states them.
    """

    title: str
    applied: tuple[str, ...]
    merged: tuple[str, ...] = ()
    named: tuple[str, ...]
    objects: str
    installs: str
    by_finalizer: bool
    kept: str
    detach: str
    of_chart: str
    repository: str
    revision: str
    defaults: Mapping[str, str]

    @property
    def root(self) -> str:
        """Return the file with the object that syncs the others."""
        return self.applied[-1]


TOOLS: Mapping[str, ToolFacts] = {
    "argocd": ToolFacts(
        title="Argo CD",
        applied=("argocd/project.yaml", "argocd/argocd-cm.yaml", "argocd/root.yaml"),
        merged=("argocd/argocd-cm.yaml",),
        named=("argocd/root.yaml",),
        objects="Applications",
        installs="Application",
        by_finalizer=True,
        kept="Prune=false",
        detach="remove metadata.finalizers of each Application and run kubectl delete application --cascade=orphan",
        of_chart="application",
        repository="repoURL",
        revision="targetRevision",
        defaults={"targetRevision": "HEAD", "project": "default", "namespace": "argocd", "server": IN_CLUSTER},
    ),
    "flux": ToolFacts(
        title="Flux",
        applied=("flux/source.yaml", "flux/sync.yaml"),
        named=("flux/source.yaml", "flux/sync.yaml"),
        objects="Kustomization and HelmReleases",
        installs="HelmRelease",
        by_finalizer=False,
        kept="disabled",
        detach="set spec.suspend: true on the Kustomization and each HelmRelease and delete them",
        of_chart="helmrelease,helmrepository,configmap",
        repository="url",
        revision="branch",
        defaults={"branch": "main", "namespace": "flux-system", "interval": "10m"},
    ),
}
"""By the key in the intent's `gitops`, which is the tool's folder in the bundle."""


def settings(intent: Intent, tool: str) -> dict[str, str]:
    """Return what the intent has for the tool, with the defaults."""
    return {**TOOLS[tool].defaults, **intent.gitops[tool]}


def object_name(intent: Intent, tool: str) -> str:
    """Return the name of the object that syncs the others; their names begin with it."""
    named: str = intent.gitops.get(tool, {}).get("name", "")
    return named or f"{intent.name}-gpus"


def installs_upstream(intent: Intent) -> bool:
    """Return whether the bundle installs the chart of the platform's stack."""
    return intent.platform.installs_chart and not intent.observes


def namespaces(intent: Intent) -> dict[str, str]:
    """Return the namespaces that the bundle makes, by the names of their files. That of an installed plugin is there."""
    made = {"namespace.yaml": intent.namespace}
    if installs_upstream(intent) and intent.plugin_namespace != intent.namespace:
        made["platform-namespace.yaml"] = intent.plugin_namespace
    for vendor, one in intent.platform.others.items():
        if one.installs_chart and not intent.observes and one.namespace not in made.values():
            made[f"{vendor}-namespace.yaml"] = one.namespace
    if intent.installs_dra_driver:
        made["dra-namespace.yaml"] = intent.platform.of_dra.namespace
    return made


def in_repository(folder: str, inside: str) -> str:
    """Return the path in the repository of a path in the bundle, which is in this folder."""
    parts = [part for part in (*folder.split("/"), *inside.split("/")) if part not in ("", ".")]
    return "/".join(parts) or "."


def is_folder(path: str) -> bool:
    """Return whether the text is a folder inside a repository."""
    return bool(re.match(rf"{PLAIN}\Z", path)) and not path.startswith("/") and ".." not in path.split("/")


def has_credentials(address: str) -> bool:
    """Return whether the address of a repository has a user of http in it, or a password."""
    return bool(re.match(_WITH_CREDENTIALS, address))
