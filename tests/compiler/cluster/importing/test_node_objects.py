"""Which card a label names: GFD's of the product, or a cloud's."""

import pytest

from gpushare.cluster.importing import node_objects
from gpushare.facts.catalog import cards
from gpushare.facts.nodes import clouds
from tests.compiler.cluster.importing.imports import errors, imported, node


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        ("g4dn.xlarge", (("t4",), "node.kubernetes.io/instance-type")),
        ("Standard_NV6ads_A10_v5", ((), "")),
    ],
)
def test_machine_type_gives_the_card_without_a_card_label(machine: str, found: tuple[tuple[str, ...], str]) -> None:
    assert node_objects.cards_of_labels({"node.kubernetes.io/instance-type": machine}, None) == found


@pytest.mark.parametrize("card_id", cards.ids())
def test_the_product_that_gfd_labels_is_the_card_with_and_without_sharing(card_id: str) -> None:
    product = cards.load(card_id).product
    assert [node_objects.card_of_product(name) for name in (product, f"{product}-SHARED")] == [card_id, card_id]


@pytest.mark.parametrize(
    ("label", "card"),
    [
        ("GeForce-GTX-1080-Ti", "gtx-1080-ti"),
        ("GeForce-RTX-2080-Ti-SHARED", "rtx-2080-ti"),
        ("NVIDIA-GeForce-RTX-4090-D", None),
        ("NVIDIA-GeForce-RTX-3060-Laptop-GPU", None),
        ("NVIDIA-RTX-A2000-8GB-Laptop-GPU", None),
        ("NVIDIA-RTX-A2000-12GB", "rtx-a2000-12gb"),
    ],
)
def test_a_label_of_old_drivers_is_known_and_a_variant_is_not_its_namesake(label: str, card: str | None) -> None:
    assert node_objects.card_of_product(label) == card


@pytest.mark.parametrize(
    ("accelerator", "card"),
    [
        ("nvidia-gb200", "gb200-186gb"),
        ("nvidia-b200", "b200-180gb"),
        ("nvidia-rtx-pro-6000", "rtx-pro-6000-server"),
    ],
)
def test_gkes_name_of_an_accelerator_is_its_card(accelerator: str, card: str) -> None:
    assert node_objects.cards_of_labels({"cloud.google.com/gke-accelerator": accelerator}, None)[0] == (card,)


@pytest.mark.parametrize(("machine", "believed"), [("p5e.48xlarge", 8), ("p6-b300.48xlarge", 8), ("p6e-gb200.36xlarge", 4)])
def test_unconfirmed_gpu_count_is_overridden_by_the_capacity(machine: str, believed: int) -> None:
    assert clouds.gpus_of_machine(machine) is None
    label = f"node.kubernetes.io/instance-type: {machine}, nvidia.com/gpu.present: 'true'"
    for rest, gpus in (("", believed), ("status: {capacity: {nvidia.com/gpu: '3'}}\n", 3)):
        found = imported(node(label, rest=rest))
        (pool,) = found.draft.pools.values()
        assert not errors(found)
        assert pool["gpusPerNode"] == gpus
        assert any("which no source confirms" in one.message for one in found.findings) == (not rest)
