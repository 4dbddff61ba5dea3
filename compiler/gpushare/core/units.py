"""Sizes, durations, percentages, sums of GPU memory, and the syntax of Kubernetes names.

Every parser returns None for what it does not accept: the schema and the rules turn that into findings with positions.
"""

import re
from collections.abc import Iterable
from typing import TypeVar

from gpushare_node.contract import quantity
from gpushare_node.contract.struct import Struct

MIB = 1 << 20
_Number = TypeVar("_Number", int, float)

_BINARY = {"Ti": 1 << 40, "Gi": 1 << 30, "Mi": MIB, "Ki": 1 << 10}
_BELOW_ONE = ("m", "u", "n")
_DURATION_PART = r"(?=\.?[0-9])([0-9]{0,9})(?:\.([0-9]{0,9}))?(h|ms|m|s|us|µs|μs|ns)"
_DURATION = rf"\+?(?:0|(?:{_DURATION_PART})+)\Z"
_MAX_DURATION_LENGTH = 100
"""In characters. Go sets no limit; a longer text is not a real duration."""
_NANOSECONDS = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "μs": 10**3, "ns": 1}
_MAX_SECONDS = (1 << 63) // 10**9
"""Go counts nanoseconds in 63 bits."""
_PERCENT = r"([0-9]{1,6})(?:\.([0-9]{1,4}))?%\Z"

_FOREIGN_SIZE = r"\s*([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([kKmMgGtT])(i?)[bB]?\s*\Z"

DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_LABEL = DNS_LABEL + r"\Z"
_DNS_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z"
_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z"


class SizeOrPercent(Struct):
    """A size that is either absolute (`bytes`) or relative (`percent`, in hundredths of a percent)."""

    bytes: int | None = None
    percent_hundredths: int | None = None

    def of(self, whole_bytes: int) -> int:
        """Return the size in bytes, rounded up; a percentage is a part of `whole_bytes`."""
        if self.bytes is not None:
            return self.bytes
        return -(-whole_bytes * (self.percent_hundredths or 0) // 10_000)


def parse_quantity(value: object) -> int | None:
    """Return the bytes of a Kubernetes quantity (`3500Mi`, `80Gi`, `2G`, `2.3Gi`, `1e9`, an integer); None unless positive.

    A fraction of a byte is rounded up, as in Kubernetes (apimachinery, resource.Quantity.Value). Units below one byte (`m`,
    `u`, `n`), which Kubernetes also reads, make no sense for the memory of a device and are rejected.
    """
    if isinstance(value, float) or (isinstance(value, str) and value.endswith(_BELOW_ONE)):
        return None
    number = quantity.units(value)
    return number if number and number < 1 << 63 else None


def meant_sizes(text: str) -> tuple[str, ...]:
    """Return a size in the form of other programs (`4GiB`, `512 MB`) as quantities; empty if it is not in such a form.

    Without an `i` two are meant: GPUs are sold in GB and measured in GiB.
    """
    found = re.match(_FOREIGN_SIZE, text)
    if found is None:
        return ()
    number, letter = found[1], found[2].upper()
    decimal = f"{number}{letter.replace('K', 'k')}"
    return (f"{number}{letter}i",) if found[3] else (f"{number}{letter}i", decimal)


def parse_duration(value: object) -> int | None:
    """Return the seconds of a Go duration in whole seconds (`10s`, `30m`, `1h30m`, `1.5h`, `0s`); None for anything else."""
    if not isinstance(value, str) or len(value) > _MAX_DURATION_LENGTH or not re.match(_DURATION, value):
        return None
    parts = re.findall(_DURATION_PART, value)
    total = sum(int(whole + fraction.ljust(9, "0")) * _NANOSECONDS[unit] for whole, fraction, unit in parts)
    seconds, rest = divmod(total, 10**18)
    return seconds if not rest and seconds <= _MAX_SECONDS else None


def show_duration(seconds: int) -> str:
    """Return a duration as a user writes it in an intent, without parts that are zero (`6h`, `200h40m`, `45m`, `0s`)."""
    minutes, rest = divmod(seconds, 60)
    parts = zip((minutes // 60, minutes % 60, rest), "hms", strict=True)
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def parse_percent(value: object) -> int | None:
    """Return the hundredths of a percent of a text such as `12.5%`; None for anything else."""
    match = re.match(_PERCENT, value) if isinstance(value, str) else None
    return int(match[1]) * 100 + int((match[2] or "0").ljust(4, "0")[:4]) // 100 if match else None


def parse_share(value: object) -> SizeOrPercent | None:
    """Return a quantity of bytes (zero allowed) or a percentage; None for anything else."""
    percent = parse_percent(value)
    if percent is not None:
        return SizeOrPercent(percent_hundredths=percent)
    if value in (0, "0") and not isinstance(value, bool):
        return SizeOrPercent(bytes=0)
    size = parse_quantity(value)
    return None if size is None else SizeOrPercent(bytes=size)


def show_bytes(size: int) -> str:
    """Return a size as a user writes it in an intent, in the largest binary unit that divides it (`3500Mi`, `80Gi`)."""
    for suffix, factor in _BINARY.items():
        if size and size % factor == 0:
            return f"{size // factor}{suffix}"
    return str(size)


def is_dns_label(text: str) -> bool:
    """Whether the text is an RFC 1123 label: Kubernetes' names of namespaces and most objects, at most 63 characters."""
    return bool(re.match(_DNS_LABEL, text))


def is_dns_subdomain(text: str) -> bool:
    """Whether the text is an RFC 1123 subdomain: Kubernetes' names of nodes, at most 253 characters."""
    return len(text) <= 253 and bool(re.match(_DNS_SUBDOMAIN, text))


def is_label_key(text: str) -> bool:
    """Whether the text is a label key: an optional DNS prefix and `/`, then a name of at most 63 characters."""
    prefix, slash, name = text.rpartition("/")
    return bool(re.match(_LABEL_NAME, name)) and (not slash or is_dns_subdomain(prefix))


def is_label_value(text: str) -> bool:
    """Whether the text is a label value: empty, or like the name part of a key."""
    return text == "" or bool(re.match(_LABEL_NAME, text))


def total(numbers: Iterable[_Number | None]) -> _Number | None:
    """Return the sum; None if one of the numbers is not known."""
    listed = list(numbers)
    known = [number for number in listed if number is not None]
    return sum(known) if len(known) == len(listed) else None


class MemoryTotals(Struct):
    """Memory in MiB; None if not known. `caps`: what all containers may use together; a device without caps counts once."""

    gpus: int | None
    offered: int | None
    caps: int | None

    @property
    def stranded(self) -> int | None:
        """What no device offers: unused slices, and what MIG itself takes."""
        return None if self.gpus is None or self.offered is None else self.gpus - self.offered

    def of_nodes(self, count: int | None) -> "MemoryTotals":
        """Return the totals of so many nodes, where this is one."""
        numbers = {"gpus": self.gpus, "offered": self.offered, "caps": self.caps}
        return MemoryTotals(**{name: None if one is None or count is None else one * count for name, one in numbers.items()})


UNKNOWN_MEMORY = MemoryTotals(gpus=None, offered=None, caps=None)


def memory_of_node(card_mib: int | None, gpus: int, devices: Iterable[tuple[int | None, int, int | None]]) -> MemoryTotals:
    """Return the totals of a node with so many GPUs. A device is its memory, its replicas, and the cap of each or None."""
    listed = list(devices)
    return MemoryTotals(
        gpus=None if card_mib is None else card_mib * gpus,
        offered=total(memory for memory, _, _ in listed),
        caps=total(memory if cap is None else cap * replicas for memory, replicas, cap in listed),
    )
