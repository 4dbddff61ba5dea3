"""From where a GitOps tool syncs each cluster of a fleet: no two clusters from one folder of a repository.

Reads the intents alone. What cannot be read has nothing here: the cluster's own compile reports it.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from gpushare.cli import streams
from gpushare.cli.exits import CouldNotRunError
from gpushare.cli.fleet_cluster import Cluster
from gpushare.intent.gitops import TOOLS
from gpushare.reading import overlay, source
from gpushare_node.contract.struct import Struct


class Synced(Struct):
    """One tool that syncs one cluster: from which folder of which revision, and by which Application of a shared Argo CD.

    `application` and `server` are empty where the tool runs in the cluster that it syncs.
    """

    cluster: str
    tool: str
    output: str
    repository: str
    revision: str
    path: str
    application: str = ""
    server: str = ""


def synced(clusters: Sequence[Cluster]) -> list[Synced]:
    """Return what syncs the clusters, in their order."""
    return [one for cluster in clusters for one in _of_cluster(cluster)]


def clashes(every: Sequence[Synced]) -> Iterator[tuple[str, str]]:
    """Yield a cluster and what it shares with one before it."""
    folders: dict[tuple[str, ...], str] = {}
    names: dict[str, str] = {}
    servers: dict[str, str] = {}
    for one in every:
        owner = folders.setdefault((one.tool, one.repository, one.revision, _normal(one.path)), one.cluster)
        if owner != one.cluster:
            yield one.cluster, f"{one.tool} would sync it from {one.path}, which is the folder of the cluster {owner}"
            continue
        owner = names.setdefault(one.application, one.cluster) if one.application else one.cluster
        if owner != one.cluster:
            yield one.cluster, f"its Applications in {one.tool} would have the names of those of the cluster {owner}"
            continue
        owner = servers.setdefault(one.server, one.cluster) if one.server else one.cluster
        if owner != one.cluster:
            yield one.cluster, f"{one.tool} would install it on the server {one.server}, which is that of the cluster {owner}"


def misplaced(every: Sequence[Synced]) -> Iterator[str]:
    """Yield a message for each output that is not the folder that a tool syncs."""
    for one in every:
        parts, wanted = PurePath(_normal(one.output)).parts, PurePath(_normal(one.path)).parts
        if parts[-len(wanted) :] != wanted:
            yield f"{one.tool} syncs {one.cluster} from {one.path}, but its bundle is written into {one.output}"


def _normal(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _of_cluster(cluster: Cluster) -> Iterator[Synced]:
    try:
        parts = [source.read(*streams.read(name, source.MAX_BYTES)) for name in (cluster.intent, *cluster.overlays)]
    except CouldNotRunError:
        return
    match overlay.merge(parts).data:
        case {"metadata": {"name": str(name)}, "spec": {"gitops": dict(tools)}}:
            pass
        case _:
            return
    for key, tool in TOOLS.items():
        given = tools.get(key)
        if isinstance(given, dict):
            settings = {**tool.defaults, **given}
            server = settings.get("server")
            is_elsewhere = server != tool.defaults.get("server")
            yield Synced(
                cluster=cluster.name,
                tool=tool.title,
                output=cluster.output,
                repository=str(settings.get(tool.repository)),
                revision=str(settings[tool.revision]),
                path=str(settings.get("path")),
                application=f"{settings['namespace']}/{given.get('name') or f'{name}-gpus'}" if is_elsewhere else "",
                server=str(server).rstrip("/") if is_elsewhere else "",
            )
