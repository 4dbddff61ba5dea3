"""VendorStack: what an intent says of the programs that offer the GPUs of a vendor other than NVIDIA."""

from collections.abc import Mapping
from typing import Any, Self

from gpushare.vendors import OTHERS
from gpushare_node.contract.struct import NOTHING, Struct
from gpushare_node.contract.vendors import Stack


class VendorStack(Struct):
    """A stack: a chart of the vendor's, or what is installed already. `vendor` is the vendor's word, a field of `platform`.

    `version` None: the newest known. `namespace` is where its programs run.
    """

    vendor: str
    stack: Stack
    version: str | None = None
    namespace: str
    values: Mapping[str, Any] = NOTHING

    @classmethod
    def of(cls, vendor: str, **fields: Any) -> Self:
        """Return the vendor's stack with these fields, and its defaults for others."""
        facts = OTHERS[vendor]
        return cls(**{"vendor": vendor, "stack": Stack(next(iter(facts.charts))), "namespace": facts.namespace, **fields})

    @classmethod
    def existing(cls, vendor: str, **fields: Any) -> Self:
        """Return the stack that is installed already."""
        return cls.of(vendor, stack=Stack.EXISTING, **fields)

    @property
    def installs_chart(self) -> bool:
        """Whether the bundle has values of one of the vendor's charts."""
        return self.stack is not Stack.EXISTING

    @property
    def has_operator(self) -> bool:
        """Whether it is an operator, which has objects of ours, and divides GPUs as they say."""
        return self.stack.value == OTHERS[self.vendor].operator_stack

    @property
    def longest_pool_name(self) -> int | None:
        """The longest name of a pool that its programs accept; None if that is no less than others do."""
        return OTHERS[self.vendor].longest_pool_name if self.has_operator else None


def of_chart(stack: str) -> str | None:
    """Return whose chart the word of a stack names; None for NVIDIA's, and for what is installed already."""
    return next((vendor for vendor, facts in OTHERS.items() if stack in facts.charts), None)
