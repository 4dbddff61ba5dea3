"""Skew: which drivers' process lists cannot be read with certainty. Pure.

R530 and R535 made the record of a list longer without giving it another version, so that rows come out scrambled. It was put
right in 535.154.05. The bounds come from reports of those it happened to, not from the maker.
"""

_FIRST = (530,)
_RIGHT_AGAIN = (535, 154, 5)


def scrambles_lists(driver_version: str) -> bool:
    """Whether this driver may be one of those. A version that cannot be read may be."""
    parts = driver_version.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return True
    return _FIRST <= tuple(int(part) for part in parts) < _RIGHT_AGAIN
