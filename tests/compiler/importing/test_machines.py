"""Which card a cloud's machine type has."""

import pytest

from gpushare.catalog import cards
from gpushare.importing import card_names, machine_gpus
from tests.compiler.importing.imports import errors, imported, node


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


@pytest.mark.parametrize(("machine", "card", "gpus"), [
    ("p6-b200.48xlarge", "b200-180gb", 8), ("g7e.8xlarge", "rtx-pro-6000-server", 1),
    ("g7e.12xlarge", "rtx-pro-6000-server", 2), ("g7e.24xlarge", "rtx-pro-6000-server", 4),
    ("g7e.48xlarge", "rtx-pro-6000-server", 8), ("a4x-highgpu-4g", "gb200-186gb", 4),
    ("a4-highgpu-8g", "b200-180gb", 8), ("g4-standard-48", "rtx-pro-6000-server", 1),
    ("g4-standard-384", "rtx-pro-6000-server", 8), ("Standard_ND96isr_H200_v5", "h200-sxm5-141gb", 8),
    ("Standard_NV36ads_A10_v5", "a10", 1), ("Standard_NV72ads_A10_v5", "a10", 2),
    ("Standard_NC32ads_A10_v4", "a10", 2), ("Standard_ND128isr_NDR_GB200_v6", "gb200-186gb", 4),
    ("p5en.48xlarge", "h200-sxm5-141gb", 8), ("Standard_ND40rs_v2", "v100-sxm2-32gb", 8),
    ("a2-megagpu-16g", "a100-sxm4-40gb", 16), ("a3-highgpu-2g", "h100-sxm5-80gb", 2), ("g6e.12xlarge", "l40s", 4),
    ("gr6.8xlarge", "l4", 1),
])
def test_a_machine_type_has_its_card_and_its_number_of_gpus(machine: str, card: str, gpus: int) -> None:
    assert card_names.of_labels({"node.kubernetes.io/instance-type": machine}, None)[0] == (card,)
    assert machine_gpus.count(machine) == gpus


@pytest.mark.parametrize(("accelerator", "card"), [
    ("nvidia-gb200", "gb200-186gb"), ("nvidia-b200", "b200-180gb"), ("nvidia-rtx-pro-6000", "rtx-pro-6000-server"),
])
def test_gkes_name_of_an_accelerator_is_its_card(accelerator: str, card: str) -> None:
    assert card_names.of_labels({"cloud.google.com/gke-accelerator": accelerator}, None)[0] == (card,)


@pytest.mark.parametrize("machine", ["Standard_NV6ads_A10_v5", "Standard_NV12ads_A10_v5", "Standard_NV18ads_A10_v5"])
def test_a_machine_with_a_part_of_a_gpu_has_no_card_of_the_catalogue(machine: str) -> None:
    assert card_names.of_labels({"node.kubernetes.io/instance-type": machine}, None) == ((), "")
    assert machine_gpus.count(machine) == 1


@pytest.mark.parametrize(
    "machine", ["", "g7e.metal", "p6-b200.24xlarge", "Standard_ND96isr_MI300X_v5", "a4x-highgpu-0g", "xg5.xlarge"])
def test_an_unlisted_machine_type_has_no_number(machine: str) -> None:
    assert machine_gpus.count(machine) is None
    assert machine_gpus.unconfirmed(machine) is None


@pytest.mark.parametrize(("machine", "believed"), [("p5e.48xlarge", 8), ("p6-b300.48xlarge", 8), ("p6e-gb200.36xlarge", 4)])
def test_an_unconfirmed_number_is_assumed_and_gives_way_to_a_capacity(machine: str, believed: int) -> None:
    assert machine_gpus.count(machine) is None
    label = f"node.kubernetes.io/instance-type: {machine}, nvidia.com/gpu.present: 'true'"
    for rest, gpus in (("", believed), ("status: {capacity: {nvidia.com/gpu: '3'}}\n", 3)):
        found = imported(node(label, rest=rest))
        (pool,) = found.draft.pools.values()
        assert not errors(found)
        assert pool["gpusPerNode"] == gpus
        assert any("which no source confirms" in one.message for one in found.findings) == (not rest)
