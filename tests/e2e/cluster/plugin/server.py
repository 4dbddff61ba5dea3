"""One resource offered to kubelet over its real gRPC API."""

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from tests.e2e.cluster.plugin import mps, wire
from tests.e2e.cluster.plugin.offer import Offer, device_of, preferred, refusal

KUBELET = Path("/var/lib/kubelet/device-plugins")


class Resource:
    """Serves one resource until it is stopped."""

    def __init__(self, name: str, offer: Offer) -> None:
        self.name = name
        self._offer = offer
        self._stopped = threading.Event()
        self._socket = KUBELET / f"nvidia-{name.partition('/')[2]}.sock"
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "v1beta1.DevicePlugin",
                    {
                        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda request, context: wire.OPTIONS),
                        "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
                        "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(self._prefer),
                        "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
                        "PreStartContainer": grpc.unary_unary_rpc_method_handler(lambda request, context: b""),
                    },
                ),
            )
        )

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

    def stop(self) -> None:
        """Kubelet sees the end of the stream, and counts none of the resource any more."""
        self._stopped.set()
        # Without a limit it waits forever where kubelet went away amid a call.
        self._server.stop(grace=0.5).wait(timeout=2)
        self._socket.unlink(missing_ok=True)

    def _list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield wire.device_list(self._offer.ids)
        while context.is_active() and not self._stopped.wait(timeout=1):
            pass

    def _prefer(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        offer = self._offer
        return wire.write_ids([preferred(offer, *wanted) for wanted in wire.preferred_request(request)])

    def _allocate(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        offer, containers = self._offer, wire.read_ids(request)
        for ids in containers:
            if problem := refusal(offer, ids):
                words = f'invalid allocation request for "{self.name}": invalid request: {problem}'
                context.abort(grpc.StatusCode.UNKNOWN, words)
        return wire.allocate_response([self._answer(offer, ids) for ids in containers])

    def _answer(self, offer: Offer, ids: tuple[str, ...]) -> wire.Answer:
        visible = {"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(set(map(device_of, ids))))}
        if offer.mps_root is None:
            return wire.Answer(environment=visible)
        return mps.with_pipe(visible, offer.mps_root, self.name)
