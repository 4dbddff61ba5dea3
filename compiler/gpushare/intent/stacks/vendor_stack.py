"""VendorStack: what an intent says of the programs that offer the GPUs of a vendor other than NVIDIA."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from gpushare_node.contract.struct import NOTHING, Struct

EXISTING = "existing"
"""The word of a stack that is installed already."""


class VendorStack(Struct):
    """A stack. `version` None: the newest known. `namespace` is where its programs run.

    `vendor` is the vendor's word, `words` are what `stack` may be: charts, and `existing`. Constants of subclasses.
    """

    vendor = ""
    words = StrEnum

    stack: StrEnum
    version: str | None = None
    namespace: str
    values: Mapping[str, Any] = NOTHING

    @classmethod
    def charts(cls) -> tuple[str, ...]:
        """Return the words that are charts."""
        return tuple(word.value for word in cls.words if word.value != EXISTING)

    @classmethod
    def existing(cls, **fields: Any) -> Self:
        """Return the stack that is installed already."""
        return cls(stack=cls.words(EXISTING), **fields)

    @classmethod
    def default(cls) -> Self:
        """Return the stack of which nothing is written."""
        return cls(**NOTHING)

    @property
    def installs_chart(self) -> bool:
        """Whether the bundle has values of one of the vendor's charts."""
        return self.stack.value != EXISTING

    @property
    def has_operator(self) -> bool:
        """Whether it is an operator, which has objects of ours, and divides GPUs as they say."""
        return False

    @property
    def longest_pool_name(self) -> int | None:
        """The longest name of a pool that its programs accept; None if that is no less than others do."""
        return None
