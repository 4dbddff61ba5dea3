"""A cause: one thing that is wrong, and what to do about it."""

from gpushare.core.record import Record


class Cause(Record):
    """One thing that is wrong, and what to do about it."""

    what: str
    remedy: str = ""
