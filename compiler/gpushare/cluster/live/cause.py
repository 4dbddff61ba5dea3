"""A cause: one thing that is wrong, and what to do about it."""

from gpushare_node.contract.struct import Struct


class Cause(Struct):
    """One thing that is wrong, and what to do about it."""

    what: str
    remedy: str = ""
