"""Quantities as the API server writes and takes them: `1k`, `2Gi`, `500m`, `1e3`. Pure.

Reads what apimachinery's resource.Quantity reads: the server answers 1000 as `1k` and 1500 as `1500`, whatever it was given.
What is finer than a billionth is rounded up. No amount here is below zero: a minus is refused. Numbers may exceed 64 bits.
"""

import re

_BILLION = 10**9
_FORM = r"\+?(?=\.?[0-9])([0-9]{0,40})(?:\.([0-9]{0,40}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([-+]?[0-9]{1,2}))?"
_BILLIONTHS = {"": _BILLION, "n": 1, "u": 10**3, "m": 10**6}
_BILLIONTHS |= {suffix: 1000**power * _BILLION for power, suffix in enumerate("kMGTPE", start=1)}
_BILLIONTHS |= {f"{suffix}i": 1024**power * _BILLION for power, suffix in enumerate("KMGTPE", start=1)}


def billionths(value: object) -> int | None:
    """Return the billionths of a quantity, a text or a number; None if it is not one."""
    match = None if isinstance(value, bool) or not isinstance(value, str | int | float) else re.fullmatch(_FORM, str(value))
    if match is None:
        return None
    whole, fraction, suffix, exponent = (part or "" for part in match.groups())
    scaled = int(whole + fraction) * _BILLIONTHS[suffix]
    power = int(exponent or 0) - len(fraction)
    ten: int = 10 ** abs(power)
    return scaled * ten if power >= 0 else -(-scaled // ten)


def units(value: object) -> int | None:
    """Return a quantity in whole units, rounded up, as the scheduler counts an extended resource; None if it is not one."""
    found = billionths(value)
    return None if found is None else -(-found // _BILLION)


def whole(value: object) -> int | None:
    """Return a quantity that is a whole number; None if it is not one, or has a fraction."""
    found = billionths(value)
    return None if found is None or found % _BILLION else found // _BILLION
