"""How many GPUs a machine type of a cloud has: the clouds' own lists of machine types, as of 2026.

`card_names` has the card of each; here is only the number. A type that is not listed has no number.
"""

from gpushare.core.patterns import pattern

_GPUS = (
    (r"g4dn\.(?:2?x|4x|8x|16x)large", 1), (r"g4dn\.12xlarge", 4), (r"g4dn\.metal", 8),
    (r"(?:g5|g6|g6e)\.(?:2?x|4x|8x|16x)large|gr6\.(?:4|8)xlarge", 1), (r"(?:g5|g6|g6e)\.(?:12|24)xlarge", 4),
    (r"(?:g5|g6|g6e)\.48xlarge", 8), (r"p3\.2xlarge", 1), (r"p3\.8xlarge", 4), (r"p3(?:\.16|dn\.24)xlarge", 8),
    (r"p4de?\.24xlarge", 8), (r"p5\.4xlarge", 1), (r"p5(?:e|en)?\.48xlarge", 8),
    (r"Standard_NC(?:4|8|16)as_T4_v3", 1), (r"Standard_NC64as_T4_v3", 4), (r"Standard_NC24ads_A100_v4", 1),
    (r"Standard_NC48ads_A100_v4", 2), (r"Standard_NC96ads_A100_v4", 4), (r"Standard_NC6s_v3", 1), (r"Standard_NC12s_v3", 2),
    (r"Standard_NC24r?s_v3", 4), (r"Standard_ND96[a-z]+(?:_[AH]\d+)?_v[45]", 8), (r"Standard_NC40adi?s_H100_v5", 1),
    (r"Standard_NC80adi?s_H100_v5", 2), (r"a3-(?:mega|edge|ultra)gpu-8g", 8), (r"a2-megagpu-16g", 16),
    (r"g2-standard-(?:4|8|12|16|32)", 1), (r"g2-standard-24", 2), (r"g2-standard-48", 4), (r"g2-standard-96", 8),
)
_TYPE = pattern("|".join(f"(?P<g{number}>(?:{text})\\Z)" for number, (text, _) in enumerate(_GPUS)))
_NAMED = pattern(r"a[23]-(?:high|ultra)gpu-(\d{1,2})g(?:-nolssd)?\Z")


def count(machine: str) -> int | None:
    """Return the number of GPUs of a machine type; None if it is not known."""
    if named := _NAMED.match(machine):
        return int(named[1]) or None
    found = _TYPE.match(machine)
    return _GPUS[int((found.lastgroup or "g0")[1:])][1] if found else None
