"""How many GPUs a machine type of a cloud has. `card_names` has the card of each; a type that is not listed has no number.

Sources: EC2 and Azure: kubernetes/autoscaler at 55c37cd (cloudprovider/aws/ec2_instance_types.go, generated from EC2's
offers, and cloudprovider/azure/azure_instance_types.go, generated from Azure's list of sizes); ND GB200 v6: Azure's page of
the series. Google Cloud: its page on accelerator-optimized machine types (A2, A3, A4, A4X, G2, G4), where the number of GPUs is
part of the name but in G2 and G4. What only others write of a type is unconfirmed, and decides nothing that a capacity says.
"""

import re
from functools import cache

_GPUS = (
    (r"g4dn\.(?:2?x|4x|8x|16x)large", 1), (r"g4dn\.12xlarge", 4), (r"g4dn\.metal", 8),
    (r"(?:g5|g6|g6e)\.(?:2?x|4x|8x|16x)large|gr6\.(?:4|8)xlarge", 1), (r"(?:g5|g6|g6e)\.(?:12|24)xlarge", 4),
    (r"(?:g5|g6|g6e)\.48xlarge", 8),
    (r"g7e\.[248]xlarge", 1), (r"g7e\.12xlarge", 2), (r"g7e\.24xlarge", 4), (r"g7e\.48xlarge", 8),
    (r"p3\.2xlarge", 1), (r"p3\.8xlarge", 4), (r"p3(?:\.16|dn\.24)xlarge", 8), (r"p4de?\.24xlarge", 8), (r"p5\.4xlarge", 1),
    (r"p5(?:en)?\.48xlarge", 8), (r"p6-b200\.48xlarge", 8),
    (r"Standard_NC(?:4|8|16)as_T4_v3", 1), (r"Standard_NC64as_T4_v3", 4), (r"Standard_NC(?:8|16)ads_A10_v4", 1),
    (r"Standard_NC32ads_A10_v4", 2), (r"Standard_NC24ads_A100_v4", 1), (r"Standard_NC48ads_A100_v4", 2),
    (r"Standard_NC96ads_A100_v4", 4), (r"Standard_NC6s_v3", 1), (r"Standard_NC12s_v3", 2), (r"Standard_NC24r?s_v3", 4),
    (r"Standard_NC40ads_H100_v5", 1), (r"Standard_NC80adis_H100_v5", 2), (r"Standard_NV(?:6|12|18|36)adm?s_A10_v5", 1),
    (r"Standard_NV72ads_A10_v5", 2), (r"Standard_ND40rs_v2", 8), (r"Standard_ND96(?:asr_v4|amsr_A100_v4|isr_H[12]00_v5)", 8),
    (r"Standard_ND128isr_NDR_GB200_v6", 4),
    (r"g2-standard-(?:4|8|12|16|32)", 1), (r"g2-standard-24", 2), (r"g2-standard-48", 4), (r"g2-standard-96", 8),
    (r"g4-standard-48", 1), (r"g4-standard-96", 2), (r"g4-standard-192", 4), (r"g4-standard-384", 8),
)
_UNCONFIRMED = ((r"p5e\.48xlarge", 8), (r"p6-b300\.48xlarge", 8), (r"p6e-gb200\.36xlarge", 4))
_NAMED = re.compile(r"a[234]x?-(?:high|mega|ultra|edge|max)gpu-(\d{1,2})g(?:-(?:nolssd|metal|lowmem))?\Z")


def count(machine: str) -> int | None:
    """Return the number of GPUs of a machine type; None if it is not known for sure."""
    if named := _NAMED.match(machine):
        return int(named[1]) or None
    return _found(machine, _GPUS)


def unconfirmed(machine: str) -> int | None:
    """Return the number that no source of the cloud's confirms, where `count` has none."""
    return _found(machine, _UNCONFIRMED)


@cache
def _found(machine: str, table: tuple[tuple[str, int], ...]) -> int | None:
    return next((gpus for text, gpus in table if re.match(rf"(?:{text})\Z", machine)), None)
