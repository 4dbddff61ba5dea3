"""What a device plugin that has gone leaves in kubelet and on the Node object, and how an administrator removes it. Pure."""

import json
from collections.abc import Collection, Iterable, Mapping

from gpushare_node.backends.backend import DEVICES


def cleanup_commands(names: Iterable[str], *, has_checkpoint: bool = False) -> str:
    """Return the commands that have kubelet, and with its checkpoint also the allocations in it, forget these resources.

    Kubelet keeps offering what the Node object has of a resource that it does not know, so it must not run meanwhile.
    """
    none = dict.fromkeys(sorted(names))
    patch = json.dumps({"status": {"capacity": none, "allocatable": none}}, separators=(",", ":"))
    removal = f" && rm {DEVICES}" if has_checkpoint else ""
    return (
        f"run `systemctl stop kubelet{removal}` on the node, then "
        f"`kubectl patch node NODE --subresource=status --type=merge -p '{patch}'`, then `systemctl start kubelet` on the node"
    )


def about_unregistered(offered: Iterable[str], registered: Mapping[str, Collection[str]]) -> str:
    """Return a clause, to follow a message, on offered resources that no plugin has registered; empty if there are none.

    Kubelet itself removes them after five minutes, by a write that may be lost.
    """
    names = sorted(name for name in offered if not registered.get(name))
    if not names:
        return ""
    commands = cleanup_commands(names)
    return f"; no plugin has registered {', '.join(names)}: if the node still offers it after five minutes, {commands}"
