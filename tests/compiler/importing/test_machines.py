"""Which card a cloud's machine type has."""

import pytest

from gpushare.catalog import cards
from gpushare.importing import card_names


@pytest.mark.parametrize(("machine", "card"), [
    ("p6-b200.48xlarge", "b200-180gb"), ("p6e-gb200.36xlarge", "gb200-186gb"), ("g7e.2xlarge", "rtx-pro-6000-server"),
    ("a4-highgpu-8g", "b200-180gb"), ("a4x-highgpu-4g", "gb200-186gb"), ("g4-standard-48", "rtx-pro-6000-server"),
    ("Standard_ND96isr_H200_v5", "h200-sxm5-141gb"), ("Standard_ND96isr_H100_v5", "h100-sxm5-80gb"), ("g4dn.xlarge", "t4"),
])
def test_a_machine_type_has_its_card(machine: str, card: str) -> None:
    known, _ = card_names.of_labels({"node.kubernetes.io/instance-type": machine}, None)
    assert (known, cards.load(card).id) == ((card,), card)
