"""What NVIDIA's DRA driver has prepared, from its checkpoint: what each claim consumes, and the devices' UUIDs. Pure.

The format is the driver's own and private to it: version 2, or version 1 as older drivers wrote it, which is as far as read
here the same. The driver copies a claim's allocation from the API server before it prepares the claim, and has its devices'
UUIDs afterwards.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from gpushare_node.contract.strict_document import Field
from gpushare_node.contract.struct import Struct
from gpushare_node.vendors import UUIDS

_QUANTITY = re.compile(r"([+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?")
_BINARY = {name: 1024**power for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {name: Fraction(10) ** power for name, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)}


class Result(Struct):
    """A device that was allocated to a request of a claim. What is None is not counted on this device."""

    driver: str
    device: str
    request: str
    share: str
    memory_bytes: int | None
    shares: int | None
    is_admin: bool


class DriverClaims(Struct):
    """The results of each claim by its uid, and the names and UUIDs of its devices: none until they are prepared."""

    results: Mapping[str, tuple[Result, ...]]
    devices: Mapping[str, tuple[tuple[str, str], ...]]

    def uuids(self, claims: Iterable[str]) -> dict[str, str]:
        """Return the UUIDs of the devices of these claims by name.

        A name with several UUIDs, a UUID of several names, and what is no UUID are left out. Claims that no pod has any more
        may have devices that are gone, under names that were given again.
        """
        pairs = {pair for uid in claims for pair in self.devices.get(uid, ()) if pair[1].startswith(UUIDS)}
        names, uuids = Counter(name for name, _ in pairs), Counter(uuid for _, uuid in pairs)
        return {name: uuid for name, uuid in pairs if names[name] == uuids[uuid] == 1}


@lru_cache(maxsize=1)
def parse(text: bytes) -> DriverClaims:
    """Return what is prepared. ValueError, with the reason, if it is not such a checkpoint."""
    versions = _fields(Field(value=json.loads(text)), optional=("v1", "v2"))
    present = next((one for one in (versions["v2"], versions["v1"]) if one.value is not None), None)
    if present is None:
        raise ValueError("it has neither version 2 nor version 1 of the driver's claims")
    claims = _fields(present, optional=("preparedClaims",))["preparedClaims"].optional(Field.entries) or ()
    results: dict[str, tuple[Result, ...]] = {}
    devices: dict[str, tuple[tuple[str, str], ...]] = {}
    for uid, claim in claims:
        fields = _fields(claim, optional=("status", "preparedDevices"))
        results[uid] = tuple(_results(fields["status"]))
        devices[uid] = tuple(_devices(fields["preparedDevices"]))
    return DriverClaims(results=results, devices=devices)


def quantity(text: str) -> Fraction:
    """Return a quantity of Kubernetes (`3840Mi`, `1e3`, `4`). ValueError if it is none, or less than zero."""
    match = _QUANTITY.fullmatch(text)
    if match is None or text.startswith("-"):
        raise ValueError(f"{text!r:.60} is no quantity")
    number, binary, decimal, exponent = match.groups()
    return Fraction(number) * (
        _BINARY[binary] if binary else _DECIMAL[decimal] if decimal else Fraction(10) ** int(exponent or 0)
    )


def _results(status: Field) -> Iterable[Result]:
    allocation = _optional(status, "allocation")
    for one in _optional(_optional(allocation, "devices"), "results").optional(Field.items) or ():
        fields = _fields(one, "driver", "device", "request", optional=("shareID", "consumedCapacity", "adminAccess"))
        consumed = dict(fields["consumedCapacity"].optional(Field.entries) or ())
        yield Result(
            driver=fields["driver"].text(),
            device=fields["device"].text(at_least=1),
            # A request with alternatives is followed by the one that was taken; pods name the request.
            request=fields["request"].text().partition("/")[0],
            share=fields["shareID"].optional(Field.text) or "",
            memory_bytes=_consumed(consumed.get("memory")),
            shares=_consumed(consumed.get("shares")),
            is_admin=fields["adminAccess"].optional(Field.boolean) or False,
        )


def _consumed(value: Field | None) -> int | None:
    return None if value is None else int(quantity(value.text()))


def _devices(groups: Field) -> Iterable[tuple[str, str]]:
    """Yield the names and UUIDs of a claim's devices. Those that are passed to virtual machines have none here."""
    for group in groups.optional(Field.items) or ():
        for one in _optional(group, "devices").optional(Field.items) or ():
            for kind, part, key in (("gpu", "info", "uuid"), ("mig", "concrete", "migUUID")):
                device = _optional(one, kind)
                if device.value is not None:
                    fields = _fields(device, part, "device")
                    name = _fields(fields["device"], "DeviceName")["DeviceName"].text(at_least=1)
                    yield name, _fields(fields[part], key)[key].text()


def _optional(value: Field, name: str) -> Field:
    """Return a field of a mapping, null if there is none or the mapping itself is null."""
    return value if value.value is None else _fields(value, optional=(name,))[name]


def _fields(value: Field, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Field]:
    """Return these fields of a mapping; a later driver may write others too."""
    return Field(value=value.value, path=value.path, ignored=[]).fields(*names, optional=optional)
