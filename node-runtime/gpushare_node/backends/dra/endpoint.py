"""Whether a DRA driver serves kubelet on this host: it listens on sockets in kubelet's folder, by which kubelet finds it too.

Their names are those of k8s.io/dynamic-resource-allocation (kubeletplugin/draplugin.go). An API server that lists no pod of the
driver is no proof: a pod that was deleted by force is gone there while its processes run on.
"""

import socket
from pathlib import Path

from gpushare_node.backends.dra.allocations import FOLDER

_SECONDS = 1.0
_NONE_LISTENS = (FileNotFoundError, ConnectionRefusedError)


def is_served(driver: str, folder: Path = FOLDER) -> bool:
    """Return whether a program listens for the driver, or may: what cannot be asked counts as an answer."""
    registry = folder / "plugins_registry"
    if not registry.is_dir():
        return True
    try:
        return any(map(_listens, (*registry.glob(f"{driver}-*"), *(folder / "plugins" / driver).glob("*.sock"))))
    except OSError:
        return True


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_SECONDS)
        try:
            client.connect(str(path))
        except _NONE_LISTENS:
            return False
        except OSError:
            return True
    return True
