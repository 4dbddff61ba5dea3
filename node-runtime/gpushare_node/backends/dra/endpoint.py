"""Whether a DRA driver serves kubelet on this host: it listens on sockets in kubelet's folder, by which kubelet finds it too.

Their names are those of k8s.io/dynamic-resource-allocation (kubeletplugin/draplugin.go). A driver that starts or ends does not
listen, and lives: only with its pods does this say something.
"""

import socket
from pathlib import Path

from gpushare_node.backends.dra.allocations import FOLDER

_SECONDS = 1.0
_NONE_LISTENS = (FileNotFoundError, ConnectionRefusedError)


def is_served(driver: str, folder: Path = FOLDER) -> bool:
    """Return whether a program listens for the driver, or may: what cannot be asked counts as an answer."""
    registry, own = folder / "plugins_registry", folder / "plugins" / driver
    try:
        # Without kubelet's list of claims the folder may be another one than kubelet's.
        (folder / "dra_manager_state").stat()
        sockets = [path for path in registry.iterdir() if path.name.startswith(f"{driver}-")]
        sockets += [path for path in own.iterdir() if path.suffix == ".sock"] if own.exists() else []
    except OSError:
        return True
    return any(map(_listens, sockets))


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
