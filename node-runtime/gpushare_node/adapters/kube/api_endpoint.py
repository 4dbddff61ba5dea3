"""ApiEndpoint: where the API server is and as whom to ask, from a pod's service account or from a kubeconfig. Sends nothing.

In a cluster urllib3, on which the official client stands, is used by itself: 22 MiB resident and 65 ms to import, where
`import kubernetes` takes 46 MiB and 200 ms, and its typed models 67 MiB. The official client reads a kubeconfig, by hand only.
"""

import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.core.structs import Struct

if TYPE_CHECKING:
    import urllib3

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CONNECTIONS = 4
"""Two watches, events, and the loop. With fewer urllib3 throws connections away and complains."""


class ApiEndpoint(Struct):
    """Where the server is and who asks. `headers` is called for every request: tokens are replaced while we run."""

    url: str
    headers: Callable[[], Mapping[str, str]]
    open_pool: Callable[[], "urllib3.PoolManager"]


def find_address(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """The server that KUBECONFIG names, or that of the cluster we run in. ClusterError if neither is there."""
    if environ.get("KUBECONFIG"):
        return from_kubeconfig(environ["KUBECONFIG"])
    if environ.get("KUBERNETES_SERVICE_HOST"):
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
        return in_cluster(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", folder)
    raise ClusterError("find the API server", None, "not in a pod, and KUBECONFIG is not set")


def in_cluster(url: str, folder: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """By the service account that kubelet mounts in that folder. It replaces the token there about every hour."""

    def headers() -> Mapping[str, str]:
        try:
            return {"Authorization": f"Bearer {(folder / 'token').read_text(encoding='utf-8').strip()}"}
        except OSError as error:
            raise ClusterError("read the service account's token", None, str(error)) from error

    def open_pool() -> "urllib3.PoolManager":
        import urllib3  # noqa: PLC0415 - work without an API server is spared it

        return urllib3.PoolManager(ca_certs=str(folder / "ca.crt"), maxsize=_CONNECTIONS, socket_options=_keep_alive())

    return ApiEndpoint(url=url, headers=headers, open_pool=open_pool)


def from_kubeconfig(files: str) -> ApiEndpoint:
    """By a kubeconfig's current context. `files` as in KUBECONFIG."""
    from kubernetes import client, config  # noqa: PLC0415 - see above
    from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 - as above

    settings: Any = client.Configuration()
    load: Any = config.load_kube_config
    try:
        load(config_file=files, client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        raise ClusterError("read the kubeconfig", None, str(error)) from error
    settings.socket_options = _keep_alive()

    def headers() -> Mapping[str, str]:
        return {one["key"]: one["value"] for one in settings.auth_settings().values()}

    def open_pool() -> "urllib3.PoolManager":
        pool: urllib3.PoolManager = RESTClientObject(settings).pool_manager
        return pool

    return ApiEndpoint(url=settings.host, headers=headers, open_pool=open_pool)


def spread(seconds: float, share: float = 0.5) -> float:
    """Up to so much less: what all nodes do at once, they do apart."""
    return seconds * random.uniform(1 - share, 1)  # noqa: S311 - spreads load, guards nothing


def _keep_alive() -> list[tuple[int, int, int]]:
    """A peer that is gone without a word is noticed after 40 seconds."""
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]
