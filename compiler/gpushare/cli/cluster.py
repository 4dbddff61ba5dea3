"""Options of the commands that ask a running cluster, and opening it: what kubectl calls the same means the same here."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from gpushare.cli import streams
from gpushare.cli.exits import CouldNotRunError
from gpushare.core.units import is_dns_label, parse_duration
from gpushare.core.wording import visible
from gpushare_node.contract.struct import Struct

if TYPE_CHECKING:
    from gpushare.cluster.live.connection import Server
    from gpushare.cluster.live.objects import ReadFailure, Snapshot
    from gpushare.cluster.live.reader import Scope

RELEASE = "gpu-system"
"""The intent's default for `spec.namespace`."""

_OPTIONS = (
    click.option("--kubeconfig", default="", metavar="FILE", help="Default: KUBECONFIG, ~/.kube/config, or the pod's own."),
    click.option("--context", "context_name", default="", metavar="NAME", help="Default: the kubeconfig's current context."),
    click.option("-n", "--namespace", default="", help="Look at this namespace's pods and quotas only."),
    click.option("--release-namespace", default="", help=f"Where gpushare is installed. Default: {RELEASE}."),
    click.option("--request-timeout", default="30s", metavar="TIME", help="For one request, such as 30s; 0: no limit."),
    click.option("--as", "user", default="", metavar="USER", help="Impersonate this user."),
    click.option("--as-group", "groups", multiple=True, metavar="GROUP", help="Impersonate this group too; repeatable."),
)


class ClusterConnection(Struct):
    """The cluster that a call names. `namespace` and `release` are empty if the call does not name them."""

    kubeconfig: str
    context_name: str
    namespace: str
    release_namespace: str
    timeout_seconds: int
    user: str
    groups: tuple[str, ...]

    @property
    def release(self) -> str:
        """Return gpushare's namespace."""
        return self.release_namespace or RELEASE


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, and pass them to the command as one argument, `cluster`."""

    @wraps(function)
    def called(*, request_timeout: str, groups: Sequence[str], **given: Any) -> Any:
        words = {name: given.pop(name) for name in ("kubeconfig", "context_name", "namespace", "release_namespace", "user")}
        for name in (words["namespace"], words["release_namespace"]):
            if name and not is_dns_label(name):
                raise click.UsageError(f"{visible(name)!r} is not the name of a namespace")
        cluster = ClusterConnection(timeout_seconds=_seconds(request_timeout), groups=tuple(groups), **words)
        return function(cluster=cluster, **given)

    decorated: Callable[..., Any] = called
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _seconds(text: str) -> int:
    """Return the seconds; a number without a unit is seconds, as kubectl reads it."""
    if re.fullmatch(r"[0-9]{1,6}", text):
        return int(text)
    seconds = parse_duration(text)
    if seconds is None:
        raise click.UsageError(f"--request-timeout {visible(text)!r} is not a time such as 30s or 1m")
    return seconds


@contextmanager
def connected(cluster: ClusterConnection) -> "Iterator[Server]":
    """Yield the cluster's API server. HintedError, with a way out, if it cannot be reached."""
    from gpushare.cluster.live import connection  # noqa: PLC0415 - `plan` and `explain` seldom ask a cluster: 45 modules for nothing
    from gpushare.cluster.live.connection import Access  # noqa: PLC0415 - as above
    from gpushare.cluster.live.pages import RequestError  # noqa: PLC0415 - as above

    access = Access(
        kubeconfig=cluster.kubeconfig,
        context=cluster.context_name,
        user=cluster.user,
        groups=cluster.groups,
        timeout_seconds=cluster.timeout_seconds,
    )
    try:
        with connection.connected(access) as server:
            yield server
    except RequestError as problem:
        raise CouldNotRunError(f"the cluster refused: {problem}") from problem


def read(cluster: ClusterConnection, scope: "Scope") -> "Snapshot":
    """Return what the scope asks for. HintedError as `connected`."""
    from gpushare.cluster.live import reader  # noqa: PLC0415 - as above

    with connected(cluster) as server:
        return reader.read(server, scope)


def warn_unread(unseen: "Sequence[ReadFailure]") -> None:
    """Write to stderr what was not seen: what the output does not say is then not taken for absent."""
    for one in dict.fromkeys(unseen):
        streams.warn(f"could not read {one.what}: {one.why}\n" + streams.hint(one.hint))
