"""One resource offered to kubelet over its real gRPC API."""

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from tests.cluster.plugin import wire
from tests.cluster.plugin.offer import Offer

KUBELET = Path("/var/lib/kubelet/device-plugins")


class Resource:
    """Serves one resource until it is stopped; a new list of ids reaches kubelet at once."""

    def __init__(self, name: str, offer: Offer) -> None:
        self.name = name
        self._offer = offer
        self._changed = threading.Condition()
        self._generation = 0
        self._stopped = False
        self._socket = KUBELET / f"tests-{name.replace('/', '-')}.sock"
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda request, context: b""),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
            "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(lambda request, context: b""),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
            "PreStartContainer": grpc.unary_unary_rpc_method_handler(lambda request, context: b""),
        }),))  # fmt: skip

    def start(self) -> None:
        """Serve, and tell kubelet."""
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{self._socket}")
        self._server.start()
        # Without an authority kubelet's Go server refuses the connection.
        options = (("grpc.default_authority", "localhost"),)
        with grpc.insecure_channel(f"unix://{KUBELET / 'kubelet.sock'}", options=options) as channel:
            request = wire.register_request(self._socket.name, self.name)
            channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=10)

    def change(self, offer: Offer) -> None:
        """Other ids from now on."""
        with self._changed:
            self._offer = offer
            self._generation += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Kubelet sees the end of the stream, and counts none of the resource any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        # Without a limit it waits for ever where kubelet went away amid a call.
        self._server.stop(grace=0.5).wait(timeout=2)
        self._socket.unlink(missing_ok=True)

    def _list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        sent = -1
        while context.is_active():
            with self._changed:
                while self._generation == sent and not self._stopped and context.is_active():
                    self._changed.wait(timeout=1)
                if self._stopped:
                    return
                sent, ids = self._generation, self._offer.ids
            yield wire.device_list(ids)

    def _allocate(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        containers = wire.allocate_request(request)
        if self._offer.refuses_more_than_one and any(len(ids) > 1 for ids in containers):
            told = f"maximum request size for shared resources is 1; found {max(map(len, containers))}"
            context.abort(grpc.StatusCode.UNKNOWN, f"invalid request: {told}")
        visible = (",".join(sorted({one.split("::")[0] for one in ids})) for ids in containers)
        return wire.allocate_response({"NVIDIA_VISIBLE_DEVICES": devices} for devices in visible)
