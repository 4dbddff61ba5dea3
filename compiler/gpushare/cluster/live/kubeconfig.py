"""Finding the cluster as kubectl does: what the call, KUBECONFIG and ~/.kube/config name. Pure; reads no file itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpushare.cluster.live.errors import NoClusterError
from gpushare.core.wording import join_words, nearest
from gpushare_node.contract.struct import NOTHING, Struct


class Access(Struct):
    """What the call says about the cluster, as kubectl's options do; empty text: not given. `timeout_seconds` 0: no limit."""

    kubeconfig: str = ""
    context: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    timeout_seconds: int = 30


class KubeContext(Struct):
    """One context of a kubeconfig: its default namespace, and the entry of its user."""

    namespace: str = ""
    user: Mapping[str, Any] = NOTHING


def files(access: Access, environ: Mapping[str, str], home: Path) -> str:
    """Return the kubeconfig's path or paths, as in KUBECONFIG."""
    return access.kubeconfig or environ.get("KUBECONFIG", "") or str(home / ".kube" / "config")


def find_context(config: Mapping[str, Any], wanted: str, where: str) -> tuple[str, KubeContext]:
    """Return the name and content of the wanted context, or of the current one. NoClusterError if there is none."""
    contexts = _named(config, "contexts", "context")
    name = wanted or str(config.get("current-context") or "")
    if not name:
        known = join_words(sorted(contexts), "or") if contexts else "none is defined"
        raise NoClusterError(f"{where} has no current context", f"name one with --context: {known}")
    if name not in contexts:
        like = nearest(name, contexts) or sorted(contexts)
        hint = f"did you mean {join_words(like, 'or')}?" if like else "the file defines no context"
        raise NoClusterError(f"{where} has no context {name!r}", hint)
    context = contexts[name]
    _check_server(config, name, context, where)
    user = _user(config, name, context, where)
    return name, KubeContext(namespace=str(context.get("namespace") or ""), user=user)


_VIEW = "`kubectl config view` shows what it contains"


def _check_server(config: Mapping[str, Any], name: str, context: Mapping[str, Any], where: str) -> None:
    """NoClusterError if the context leads to no address. kubectl would ask localhost, or guess the protocol."""
    cluster, clusters = context.get("cluster"), _named(config, "clusters", "cluster")
    if not cluster:
        raise NoClusterError(f"context {name!r} in {where} names no cluster", _VIEW)
    if str(cluster) not in clusters:
        raise NoClusterError(f"{where} has no cluster {str(cluster)!r}, which context {name!r} names", _VIEW)
    server = clusters[str(cluster)].get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        problem = f"has the server {server!r}" if server else "has no server"
        raise NoClusterError(
            f"cluster {str(cluster)!r} in {where} {problem}", "write the address with its protocol: https://HOST:PORT"
        )


def _user(config: Mapping[str, Any], name: str, context: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the entry of the context's user; empty without one. NoClusterError if it is not there or no entry of a user."""
    user, users = context.get("user"), _named(config, "users", "user")
    if not user:
        return {}
    if str(user) not in users:
        raise NoClusterError(f"{where} has no user {str(user)!r}, which context {name!r} names", _VIEW)
    found = users[str(user)]
    plugin = found.get("exec")
    if plugin is not None and not (isinstance(plugin, dict) and isinstance(plugin.get("command"), str) and plugin["command"]):
        raise NoClusterError(f"the plugin of user {str(user)!r} in {where} has no command", "write users[].user.exec.command")
    return found


def impersonated(access: Access, user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers that impersonate: --as and --as-group, or else what the kubeconfig's user entry says."""
    name, groups = access.user, list(access.groups)
    if not name:
        entry = user.get("as-groups")
        name, groups = str(user.get("as") or ""), groups or [str(one) for one in (entry if isinstance(entry, list) else ())]
    if groups and not name:
        raise NoClusterError("--as-group needs --as", "name the user with --as")
    return [("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups)] if name else []


def _named(config: Mapping[str, Any], section: str, part: str) -> dict[str, Mapping[str, Any]]:
    entries = config.get(section)
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get(part) or {}, dict):
            found[str(entry.get("name"))] = entry.get(part) or {}
    return found
