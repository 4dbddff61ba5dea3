"""ApiEndpoint: the API server's URL and credentials, from a pod's service account or from a kubeconfig. Sends nothing.

In a cluster it uses urllib3, the basis of the official client, directly: 22 MiB resident and 65 ms to import, whereas
`import kubernetes` takes 46 MiB and 200 ms, and its typed models 67 MiB. The official client is used only to read a kubeconfig,
for runs by hand.
"""

import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.contract.struct import Struct

if TYPE_CHECKING:
    import urllib3

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CONNECTIONS = 4
"""Two watches, events, and the loop. With a smaller pool urllib3 discards connections and logs warnings."""


class ApiEndpoint(Struct):
    """The server's URL and the client's credentials. `headers` is called for every request, because kubelet rotates tokens."""

    url: str
    headers: Callable[[], Mapping[str, str]]
    open_pool: Callable[[], "urllib3.PoolManager"]


def find_endpoint(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """Return the server that KUBECONFIG names, or that of the cluster we run in. ClusterError if there is neither."""
    if environ.get("KUBECONFIG"):
        return from_kubeconfig(environ["KUBECONFIG"])
    if environ.get("KUBERNETES_SERVICE_HOST"):
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
        return in_cluster(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", folder)
    raise ClusterError("find the API server", None, "not in a pod, and KUBECONFIG is not set")


def in_cluster(url: str, folder: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """Return the endpoint with the service account that kubelet mounts in that folder. It rotates the token about hourly."""

    def headers() -> Mapping[str, str]:
        try:
            return {"Authorization": f"Bearer {(folder / 'token').read_text(encoding='utf-8').strip()}"}
        except OSError as error:
            raise ClusterError("read the service account's token", None, str(error)) from error

    def open_pool() -> "urllib3.PoolManager":
        import urllib3  # noqa: PLC0415 - not imported for work without an API server

        return urllib3.PoolManager(ca_certs=str(folder / "ca.crt"), maxsize=_CONNECTIONS, socket_options=_keep_alive())

    return ApiEndpoint(url=url, headers=headers, open_pool=open_pool)


def from_kubeconfig(files: str) -> ApiEndpoint:
    """Return the endpoint of a kubeconfig's current context. `files` as in KUBECONFIG."""
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


def jitter(seconds: float, share: float = 0.5) -> float:
    """Return `seconds` reduced by a random part of up to `share`, so that nodes do not act at the same time."""
    return seconds * random.uniform(1 - share, 1)  # noqa: S311 - spreads load, guards nothing


def _keep_alive() -> list[tuple[int, int, int]]:
    """Return socket options with which a peer that disappeared is detected after 40 seconds."""
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]
