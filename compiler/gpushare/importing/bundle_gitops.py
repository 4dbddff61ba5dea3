"""What the objects of Argo CD and Flux in a bundle say of `gitops`: repository, folder, names.

Only fields that differ from the defaults of the intent's schema are written.
"""

from gpushare.importing.draft import Draft
from gpushare.importing.facts import Facts
from gpushare.importing.parts import Part
from gpushare.intent.gitops import TOOLS

KINDS = frozenset({"Application", "GitRepository", "Kustomization"})


def add(facts: Facts, draft: Draft) -> None:
    """Add `gitops.argocd` and `gitops.flux`, each from the object that syncs the others."""
    cluster = next((one.at("cluster").text for one in facts.bundle), "")
    _argocd(facts, draft, cluster)
    _flux(facts, draft, cluster)


def _argocd(facts: Facts, draft: Draft, cluster: str) -> None:
    root = _first(facts, "Application", ("spec", "source", "path"), "argocd/apps")
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
    root = _first(facts, "Kustomization", ("spec", "path"), "flux/apps")
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
    return path.removesuffix(f"{tool}/apps").removeprefix("./").rstrip("/") or "."


def _put(draft: Draft, tool: str, found: dict[str, str], root: Part, cluster: str) -> None:
    metadata = root.at("metadata")
    name = metadata.at("name").text
    found |= {"namespace": metadata.at("namespace").text, "name": name if name != f"{cluster}-gpus" else ""}
    kept = {key: value for key, value in found.items() if value and value != TOOLS[tool].defaults.get(key)}
    draft.put(("gitops", tool), kept, root, f"from the bundle's {tool}/")
