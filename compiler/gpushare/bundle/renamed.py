"""GS795: a cluster that a GitOps tool syncs already gets another name, and with it other objects. Reads no files.

Both tools delete an object that leaves the repository together with what it installed; the former names do leave it.
"""

from collections.abc import Iterator, Mapping

from gpushare.core.diagnostics import Finding
from gpushare.core.wording import join_words, shorten
from gpushare.intent import gitops
from gpushare.intent.types import Intent
from gpushare.reading import source


def findings(intent: Intent, roots: Mapping[str, bytes]) -> Iterator[Finding]:
    """Yield an error for a tool whose objects are renamed, unless the intent states their name.

    `roots` are the files with the tools' roots that the former bundle has.
    """
    for key, tool in gitops.TOOLS.items():
        if "name" in intent.gitops.get(key, {"name": ""}):
            continue
        before, after = _name(roots.get(tool.root, b"")), gitops.object_name(intent, key)
        if before and before != after:
            field = f"gitops.{key}.name"
            rename = f"to rename them, first {tool.detach}; then write {field}: {after}, compile, and apply "
            rename += join_words(tool.named)
            yield Finding(
                code="GS795",
                message=f"the names of the {tool.objects} change from {shorten(before)} to {after}: {tool.title} deletes "
                "the former ones and releases every node, and running pods lose their GPUs",
                hints=(f"to keep them, write {field}: {shorten(before)}", rename),
                path=("metadata", "name"),
            )


def _name(root: bytes) -> str:
    """Return the name of an object; empty if the text has none, such as one with a merge conflict."""
    document = source.read(root, "").data if root else None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
