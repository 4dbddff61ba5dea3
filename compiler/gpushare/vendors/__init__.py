"""What is a vendor's own: the names of its resources, labels and charts, and where its cards are."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Protocol

from gpushare.vendors.amd import AMD
from gpushare.vendors.nvidia import NVIDIA
from gpushare.vendors.vendor import GpuVendor

VENDORS: Mapping[str, GpuVendor] = {one.word.value: one for one in (NVIDIA, AMD)}
"""Every vendor, by the word that a node policy has for it."""

DEFAULT = NVIDIA
"""Who is meant where nothing names one. Where documents name its stack, no other field does."""

OTHERS: Mapping[str, GpuVendor] = {word: vendor for word, vendor in VENDORS.items() if vendor is not DEFAULT}
"""Those that documents name."""

GPU_NAMES = " || ".join(vendor.asked_for for vendor in VENDORS.values())
"""The CEL condition on `name`, a resource in `limits`, that it is GPUs or parts of them."""

GPU_RESOURCES = tuple(chain.from_iterable(vendor.gpu_resources for vendor in VENDORS.values()))
"""With which the names of resources begin that are GPUs of any vendor, or parts of them."""

OPERATORS = tuple((vendor, vendor.operator_objects) for vendor in VENDORS.values() if vendor.operator_objects is not None)
"""The vendors for whose operator our chart makes objects, and which."""


class HasVendor(Protocol):
    """What has a vendor, such as a card."""

    @property
    def vendor(self) -> str:
        """A key of `VENDORS`."""


def of(made: HasVendor) -> GpuVendor:
    """Return the vendor of a card."""
    return VENDORS[made.vendor]


def of_resources(names: Iterable[str]) -> GpuVendor:
    """Return whose resources the names are; the default if they are no vendor's."""
    listed = tuple(names)
    return next((one for one in VENDORS.values() if any(name.startswith(one.prefix) for name in listed)), NVIDIA)


def short(resource: str) -> str:
    """Return the name of a resource without its vendor's prefix."""
    return resource.removeprefix(of_resources([resource]).prefix)
