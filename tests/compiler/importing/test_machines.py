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


@pytest.mark.parametrize("card_id", cards.ids())
def test_the_product_that_gfd_labels_is_the_card_with_and_without_sharing(card_id: str) -> None:
    product = cards.load(card_id).product
    assert [card_names.of_product(name) for name in (product, f"{product}-SHARED")] == [card_id, card_id]


@pytest.mark.parametrize(("label", "card"), [
    ("GeForce-GTX-1080-Ti", "gtx-1080-ti"), ("GeForce-RTX-2080-Ti-SHARED", "rtx-2080-ti"), ("NVIDIA-GeForce-RTX-4090-D", None),
    ("NVIDIA-GeForce-RTX-3060-Laptop-GPU", None), ("NVIDIA-RTX-A2000-8GB-Laptop-GPU", None),
    ("NVIDIA-RTX-A2000-12GB", "rtx-a2000-12gb"),
])
def test_a_label_of_old_drivers_is_known_and_a_variant_is_not_its_namesake(label: str, card: str | None) -> None:
    assert card_names.of_product(label) == card
