"""Quirks: what particular driver versions report wrongly, so far the process lists of some. Pure.

R530 and R535 extended the record of a list without changing its version, so that rows are scrambled. 535.154.05 fixed it. The
bounds come from users' reports, not from the vendor.
"""

_FIRST = (530,)
_FIXED_IN = (535, 154, 5)


def scrambles_lists(driver_version: str) -> bool:
    """Whether this driver may be one of those. A version that cannot be parsed counts as one."""
    parts = driver_version.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return True
    return _FIRST <= tuple(int(part) for part in parts) < _FIXED_IN
