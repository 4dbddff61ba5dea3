"""GS795: a cluster that Argo CD or Flux syncs already gets another name, and with it other objects. Reads no files.

Both tools delete an object that leaves the repository together with what it installed; the former names do leave it.
"""

from collections.abc import Iterator, Mapping

from gpushare.core.diagnostics import Finding
from gpushare.core.wording import shorten
from gpushare.intent import gitops
from gpushare.intent.types import Intent
from gpushare.reading import source

_STEPS = {
    "argocd": "to rename them, first, for each Application, remove metadata.finalizers and run kubectl delete application "
    "--cascade=orphan; then write gitops.argocd.name: {new}, compile, and apply argocd/root.yaml",
    "flux": "to rename them, first set spec.suspend: true on the Kustomization and each HelmRelease and delete them; then "
    "write gitops.flux.name: {new}, compile, and apply flux/source.yaml and flux/sync.yaml",
}
_OBJECTS = {"argocd": "Applications", "flux": "Kustomization and HelmReleases"}
_TOOLS = {"argocd": "Argo CD", "flux": "Flux"}


def findings(intent: Intent, roots: Mapping[str, bytes]) -> Iterator[Finding]:
    """Yield an error for a tool whose objects are renamed, unless the intent states their name.

    `roots` are the files of `gitops.ROOTS` that the former bundle has.
    """
    for tool, path in gitops.ROOTS.items():
        if "name" in intent.gitops.get(tool, {"name": ""}):
            continue
        before, after = _name(roots.get(path, b"")), gitops.object_name(intent, tool)
        if before and before != after:
            yield Finding(
                code="GS795",
                message=f"the names of the {_OBJECTS[tool]} change from {shorten(before)} to {after}: {_TOOLS[tool]} deletes "
                "the former ones and releases every node, and running pods lose their GPUs",
                hints=(f"to keep them, write gitops.{tool}.name: {shorten(before)}", _STEPS[tool].format(new=after)),
                path=("metadata", "name"),
            )


def _name(root: bytes) -> str:
    """Return the name of an object; empty if the text has none, such as one with a merge conflict."""
    document = source.read(root, "").data if root else None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
