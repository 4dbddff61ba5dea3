"""The few messages of kubelet's device-plugin API v1beta1, in protobuf's wire format.

Written by hand, since they are six short messages. Field numbers: k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/api.proto.
"""

from collections.abc import Iterable, Iterator, Mapping

_LENGTH_DELIMITED = 2


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(data)) + data


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Length-delimited fields; the only others here are flags that nobody sends."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == _LENGTH_DELIMITED:
            length = varint()
            yield key >> 3, data[at : at + length]
            at += length
        else:
            varint()


def register_request(endpoint: str, resource: str) -> bytes:
    """What a plugin says to kubelet: its socket beside kubelet's, and what it offers."""
    return _field(1, "v1beta1") + _field(2, endpoint) + _field(3, resource)


def device_list(ids: Iterable[str]) -> bytes:
    """A ListAndWatchResponse: all healthy."""
    return b"".join(_field(1, _field(1, one) + _field(2, "Healthy")) for one in ids)


def allocate_request(data: bytes) -> tuple[tuple[str, ...], ...]:
    """The device ids for each container."""
    containers = [content for number, content in _fields(data) if number == 1]
    return tuple(tuple(one.decode() for number, one in _fields(container) if number == 1) for container in containers)


def allocate_response(environments: Iterable[Mapping[str, str]]) -> bytes:
    """What each container gets: environment variables."""
    def entry(name: str, value: str) -> bytes:
        return _field(1, _field(1, name) + _field(2, value))

    return b"".join(_field(1, b"".join(entry(*pair) for pair in one.items())) for one in environments)
