"""The few messages of kubelet's device-plugin API v1beta1, in protobuf's wire format, as either side reads and writes them.

Written by hand, since they are a few short messages. Field numbers: k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/api.proto.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_VARINT, _LENGTH_DELIMITED = 0, 2


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _fields(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Each field's number, its content where it is length-delimited, and its value where it is a number."""
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
            yield key >> 3, data[at : at + length], 0
            at += length
        else:
            yield key >> 3, b"", varint()


def _contents(data: bytes, number: int) -> list[bytes]:
    return [content for one, content, _ in _fields(data) if one == number]


def _texts(data: bytes, number: int) -> tuple[str, ...]:
    return tuple(content.decode() for content in _contents(data, number))


OPTIONS = _number(2, 1)
"""DevicePluginOptions: it is asked which ids it prefers."""


def register_request(endpoint: str, resource: str) -> bytes:
    """What a plugin says to kubelet: its socket beside kubelet's, what it offers, and its options."""
    return _field(1, "v1beta1") + _field(2, endpoint) + _field(3, resource) + _field(4, OPTIONS)


def registration(data: bytes) -> tuple[str, str]:
    """Of what a plugin says to kubelet: its socket's name, and the resource that it offers."""
    return _texts(data, 2)[0], _texts(data, 3)[0]


def device_list(ids: Iterable[str]) -> bytes:
    """A ListAndWatchResponse: all healthy."""
    return b"".join(_field(1, _field(1, one) + _field(2, "Healthy")) for one in ids)


def devices(data: bytes) -> dict[str, str]:
    """Of a ListAndWatchResponse: id → health."""
    return {_texts(one, 1)[0]: _texts(one, 2)[0] for one in _contents(data, 1)}


def write_ids(containers: Iterable[Sequence[str]]) -> bytes:
    """The ids of each container: an AllocateRequest, or a PreferredAllocationResponse."""
    return b"".join(_field(1, b"".join(_field(1, one) for one in ids)) for ids in containers)


def read_ids(data: bytes) -> tuple[tuple[str, ...], ...]:
    """The other way."""
    return tuple(_texts(container, 1) for container in _contents(data, 1))


def preference_request(available: Iterable[str], required: Iterable[str], size: int) -> bytes:
    """A PreferredAllocationRequest of one container."""
    wanted = b"".join(_field(1, one) for one in available) + b"".join(_field(2, one) for one in required)
    return _field(1, wanted + _number(3, size))


def preferred_request(data: bytes) -> list[tuple[tuple[str, ...], tuple[str, ...], int]]:
    """For each container: what is available, what must be among it, and how many are wanted."""
    return [
        (_texts(one, 1), _texts(one, 2), next((value for number, _, value in _fields(one) if number == 3), 0))
        for one in _contents(data, 1)
    ]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a container gets. `mounts`: path in the container → path on the host."""

    environment: Mapping[str, str]
    mounts: Mapping[str, str] = field(default_factory=dict)


def allocate_response(answers: Iterable[Answer]) -> bytes:
    """An AllocateResponse."""

    def pairs(number: int, some: Mapping[str, str]) -> bytes:
        return b"".join(_field(number, _field(1, one) + _field(2, other)) for one, other in some.items())

    return b"".join(_field(1, pairs(1, one.environment) + pairs(2, one.mounts)) for one in answers)


def answers(data: bytes) -> list[Answer]:
    """Of an AllocateResponse."""

    def pairs(container: bytes, number: int) -> dict[str, str]:
        return {_texts(one, 1)[0]: _texts(one, 2)[0] for one in _contents(container, number)}

    return [Answer(environment=pairs(one, 1), mounts=pairs(one, 2)) for one in _contents(data, 1)]
