"""What the objects of Argo CD and Flux in a bundle say of `gitops`: repository, folder, names.

Only fields that differ from the defaults of the intent's schema are written.
"""

from gpushare.importing.draft import Draft
from gpushare.importing.facts import Facts
from gpushare.importing.parts import Part

KINDS = frozenset({"Application", "GitRepository", "Kustomization"})
_APPS = {"argocd": "argocd/apps", "flux": "flux/apps"}
_DEFAULTS = {
    "targetRevision": "HEAD",
    "project": "default",
    "server": "https://kubernetes.default.svc",
    "branch": "main",
    "interval": "10m",
}
_PLACES = {"argocd": "argocd", "flux": "flux-system"}


def add(facts: Facts, draft: Draft) -> None:
    """Add `gitops.argocd` and `gitops.flux`, each from the object that syncs the others."""
    cluster = next((one.at("cluster").text for one in facts.bundle), "")
    _argocd(facts, draft, cluster)
    _flux(facts, draft, cluster)


def _argocd(facts: Facts, draft: Draft, cluster: str) -> None:
    root = _first(facts, "Application", ("spec", "source", "path"), _APPS["argocd"])
    chart = _first(facts, "Application", ("spec", "source", "path"), "chart")
    if root is None:
        return
    source = root.at("spec", "source")
    found = {
        "repoURL": source.at("repoURL").text,
        "path": _folder(source.at("path").text, "argocd"),
        "targetRevision": source.at("targetRevision").text,
    }
    if chart is not None:
        found |= {"project": chart.at("spec", "project").text, "server": chart.at("spec", "destination", "server").text}
    _put(draft, "argocd", found, root, cluster)


def _flux(facts: Facts, draft: Draft, cluster: str) -> None:
    root = _first(facts, "Kustomization", ("spec", "path"), _APPS["flux"])
    source = next((one for one in facts.synced if one.at("kind").value == "GitRepository"), None)
    if root is None or source is None:
        return
    spec = source.at("spec")
    found = {
        "url": spec.at("url").text,
        "path": _folder(root.at("spec", "path").text, "flux"),
        "branch": spec.at("ref", "branch").text,
        "secret": spec.at("secretRef", "name").text,
        "interval": spec.at("interval").text,
    }
    _put(draft, "flux", found, root, cluster)


def _first(facts: Facts, kind: str, path: tuple[str, ...], end: str) -> Part | None:
    """Return the first object of the kind whose folder in the repository is the bundle's with this end."""
    return next(
        (one for one in facts.synced if one.at("kind").value == kind and f"/{one.at(*path).text}".endswith(f"/{end}")), None
    )


def _folder(path: str, tool: str) -> str:
    return path.removesuffix(_APPS[tool]).removeprefix("./").rstrip("/") or "."


def _put(draft: Draft, tool: str, found: dict[str, str], root: Part, cluster: str) -> None:
    metadata = root.at("metadata")
    namespace, name = metadata.at("namespace").text, metadata.at("name").text
    found |= {"namespace": namespace if namespace != _PLACES[tool] else "", "name": name if name != f"{cluster}-gpus" else ""}
    kept = {key: value for key, value in found.items() if value and value != _DEFAULTS.get(key)}
    draft.put(("gitops", tool), kept, root, f"from the bundle's {tool}/")
