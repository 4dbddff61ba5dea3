"""Device plugins: what kubelet gave to which pod, the label that a plugin follows, and what the node must offer."""

from collections.abc import Callable

from gpushare_node import vendors
from gpushare_node.backends.backend import Checkpoint, Socket
from gpushare_node.backends.device_plugin import checkpoint, labels, offer, plugin_pods
from gpushare_node.contract.struct import Struct


class DevicePlugin(Struct):
    """The `Backend` of device plugins, with kubelet's files as this host has them."""

    read_checkpoint: Callable[[], Checkpoint] = checkpoint.read_checkpoint
    find_sockets: Callable[[], frozenset[Socket]] = checkpoint.find_sockets

    publish = staticmethod(labels.publish)
    flip = staticmethod(labels.flip)
    advertised = staticmethod(vendors.advertised)
    expected = staticmethod(offer.expected)
    find_mismatch = staticmethod(offer.find_mismatch)
    find_stale = staticmethod(offer.find_stale)
    restartable = staticmethod(plugin_pods.restartable)
    explain = staticmethod(plugin_pods.explain)
