"""What the tools that sync a bundle from Git have in common: names, folders and addresses of repositories."""

import re

from gpushare.intent.types import Intent, Stack

PLAIN = r"[^\s$\\]+"
"""No tool replaces any of it: `$` begins a variable in Argo CD's paths and in Flux's substitutions."""
REVISION = r"[A-Za-z0-9._/+@~^-]+\Z"
_WITH_CREDENTIALS = r"(?i)\s*(https?://[^/]*@|[a-z]+://[^/]*:(?!\d+/).*@)"
"""A password may have a slash or a blank in it, although an address then means something else; a port has digits alone."""


ROOTS = {"argocd": "argocd/root.yaml", "flux": "flux/sync.yaml"}
"""By tool, the file of the bundle with the object that syncs the others."""


def object_name(intent: Intent, tool: str) -> str:
    """Return the name of the object that syncs the others; their names begin with it."""
    named: str = intent.gitops.get(tool, {}).get("name", "")
    return named or f"{intent.name}-gpus"


def installs_upstream(intent: Intent) -> bool:
    """Return whether the bundle installs a chart of NVIDIA's."""
    return intent.platform.stack is not Stack.EXISTING and not intent.observes


def namespaces(intent: Intent) -> dict[str, str]:
    """Return the namespaces that the bundle makes, by the names of their files. That of an installed plugin is there."""
    made = {"namespace.yaml": intent.namespace}
    if installs_upstream(intent) and intent.plugin_namespace != intent.namespace:
        made["platform-namespace.yaml"] = intent.plugin_namespace
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
