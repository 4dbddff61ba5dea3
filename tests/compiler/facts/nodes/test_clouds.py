"""What the table of the clouds says: machine types with their cards and GPUs, and what its entries must have."""

import pytest

from gpushare.facts.catalog import cards
from gpushare.facts.nodes import clouds
from gpushare.facts.nodes.clouds import CLOUDS, Cloud

EACH = pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.name)


@pytest.mark.parametrize(
    ("machine", "card"),
    [
        ("p6-b200.48xlarge", "b200-180gb"),
        ("p6e-gb200.36xlarge", "gb200-186gb"),
        ("g7e.2xlarge", "rtx-pro-6000-server"),
        ("a4-highgpu-8g", "b200-180gb"),
        ("a4x-highgpu-4g", "gb200-186gb"),
        ("g4-standard-48", "rtx-pro-6000-server"),
        ("Standard_ND96isr_H200_v5", "h200-sxm5-141gb"),
        ("Standard_ND96isr_H100_v5", "h100-sxm5-80gb"),
        ("g4dn.xlarge", "t4"),
    ],
)
def test_a_machine_type_has_its_card(machine: str, card: str) -> None:
    assert (clouds.card_of_machine(machine), cards.load(card).id) == (card, card)


@pytest.mark.parametrize(
    ("machine", "card", "gpus"),
    [
        ("p6-b200.48xlarge", "b200-180gb", 8),
        ("g7e.8xlarge", "rtx-pro-6000-server", 1),
        ("g7e.12xlarge", "rtx-pro-6000-server", 2),
        ("g7e.24xlarge", "rtx-pro-6000-server", 4),
        ("g7e.48xlarge", "rtx-pro-6000-server", 8),
        ("a4x-highgpu-4g", "gb200-186gb", 4),
        ("a4-highgpu-8g", "b200-180gb", 8),
        ("g4-standard-48", "rtx-pro-6000-server", 1),
        ("g4-standard-384", "rtx-pro-6000-server", 8),
        ("Standard_ND96isr_H200_v5", "h200-sxm5-141gb", 8),
        ("Standard_NV36ads_A10_v5", "a10", 1),
        ("Standard_NV72ads_A10_v5", "a10", 2),
        ("Standard_NC32ads_A10_v4", "a10", 2),
        ("Standard_ND128isr_NDR_GB200_v6", "gb200-186gb", 4),
        ("p5en.48xlarge", "h200-sxm5-141gb", 8),
        ("Standard_ND40rs_v2", "v100-sxm2-32gb", 8),
        ("a2-megagpu-16g", "a100-sxm4-40gb", 16),
        ("a3-highgpu-2g", "h100-sxm5-80gb", 2),
        ("g6e.12xlarge", "l40s", 4),
        ("gr6.8xlarge", "l4", 1),
    ],
)
def test_a_machine_type_has_its_card_and_its_number_of_gpus(machine: str, card: str, gpus: int) -> None:
    assert clouds.card_of_machine(machine) == card
    assert clouds.gpus_of_machine(machine) == gpus


@pytest.mark.parametrize("machine", ["Standard_NV6ads_A10_v5", "Standard_NV12ads_A10_v5", "Standard_NV18ads_A10_v5"])
def test_a_machine_with_a_part_of_a_gpu_has_no_card_of_the_catalogue(machine: str) -> None:
    assert clouds.card_of_machine(machine) is None
    assert clouds.gpus_of_machine(machine) == 1


@pytest.mark.parametrize(
    "machine", ["", "g7e.metal", "p6-b200.24xlarge", "Standard_ND96isr_MI300X_v5", "a4x-highgpu-0g", "xg5.xlarge"]
)
def test_an_unlisted_machine_type_has_no_number(machine: str) -> None:
    assert clouds.gpus_of_machine(machine) is None
    assert clouds.unconfirmed_gpus_of_machine(machine) is None


@EACH
def test_every_card_of_a_cloud_is_in_the_catalogue(cloud: Cloud) -> None:
    named = {machines.card for machines in cloud.machines if machines.card}
    assert named | {card for known in cloud.accelerators.values() for card in known} <= set(cards.ids())


@EACH
def test_every_label_of_a_cloud_belongs_to_no_other(cloud: Cloud) -> None:
    def labels(one: Cloud) -> set[str]:
        return {one.domain, one.pool_label, one.former_pool_label, one.gpu_label, one.former_gpu_label} - {""}

    assert not labels(cloud) & {label for other in CLOUDS if other is not cloud for label in labels(other)}


@EACH
def test_the_text_on_the_start_up_taint_names_pool_and_taint(cloud: Cloud) -> None:
    text = cloud.startup_taint.format(pool="gpus", POOL="GPUS", taint="example.org/key")
    assert not text or ("example.org/key" in text and text.endswith("\n"))
