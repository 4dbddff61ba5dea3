"""Mode `vgpu`: each GPU is divided into NVIDIA vGPUs for virtual machines, by NVIDIA's vGPU device manager."""

from typing import ClassVar

from gpushare.facts.catalog.cards import Card, VgpuType
from gpushare.intent.types import Layout, Mode, Vgpu
from gpushare.offering.modes.traits import ModeTraits, Variant
from gpushare_node.contract.policy import Mechanism


class VgpuTraits(ModeTraits[Vgpu]):
    """The traits of vGPUs. Nothing of a GPU is offered to containers, so that the mode is none of the compared variants."""

    mode = Mode.VGPU
    description = "The GPUs go to virtual machines of KubeVirt: each is divided into NVIDIA vGPUs of one type."
    pool_name = "desktops"
    starter_card = "a10"
    takes_claims = False
    replication_key = ""
    mechanisms: ClassVar[frozenset[Mechanism]] = frozenset()
    card_facts = (("vgpu", "vGPU with NVIDIA's operator"),)
    variants: ClassVar[tuple[Variant, ...]] = ()
    serves_vms = True

    @classmethod
    def missing(cls, card: Card) -> tuple[str, str] | None:
        """Return that the catalogue knows no vGPU types of the card that NVIDIA's vGPU device manager creates."""
        has_types = card.vgpu is not None and card.vgpu.types
        return None if has_types else ("vGPUs that NVIDIA's vGPU device manager creates", "another, or another card")

    def layouts(self, card: Card, pinned: Layout | None = None) -> None:
        """Return None: no device of the pool is offered to containers."""

    def vgpu_type(self, card: Card) -> VgpuType | None:
        """Return the type that the pool names."""
        types = card.vgpu.types if card.vgpu else ()
        return next((one for one in types if one.name == self.sharing.profile), None)

    @property
    def kernel(self) -> tuple[int, int] | None:
        """The kernel that the pool states."""
        return self.sharing.kernel
