"""Mode `mps`: containers compute on a GPU at the same time, as clients of the device plugin's MPS daemon."""

from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import Mode, Mps, Sharing
from gpushare.offering.modes.traits import (
    UNKNOWN_MEMORY,
    Demand,
    FaultIsolation,
    MemoryIsolation,
    ModeTraits,
    Variant,
    most_caps,
    too_small,
)
from gpushare_node.contract.policy import Mechanism

_UNCOUNTED_MIB = 32
"""Room for sixteen CUDA contexts in a container. MPS's limit leaves out 2 MiB of each, which the driver reports as the
client's: on an H100 with driver 580.159.04 a client that fills a limit of 2048 MiB has 2050 MiB in the process list, one with
two contexts 2052 MiB. tests/e2e/gpu/test_mps.py measures the first again."""

_CLIENT_LIMITS_FROM = (7, 0)
"""Compute capability from which an MPS client can have a memory limit (Volta)."""


def limits_clients(card: Card) -> bool:
    """Whether MPS holds each client to its share of the card."""
    return card.compute_capability is not None and card.compute_capability >= _CLIENT_LIMITS_FROM


def has_shares(card: Card) -> bool:
    """Whether the device plugin runs MPS on the card, and MPS holds each client to its share there."""
    return card.mps_supported and limits_clients(card)


def _divide(demand: Demand) -> list[Sharing] | str:
    card, need = demand.card, demand.needs[0]
    if not card.mps_supported:
        return "the device plugin does not run MPS on this card"
    if not limits_clients(card):
        return "MPS needs Volta or newer to give clients shares of their own"
    if card.memory_mib is None:
        return UNKNOWN_MEMORY
    replicas = min(most_caps(card.memory_mib, need), card.mps_max_replicas)
    return [Mps(replicas=replicas)] if replicas > 1 else too_small("half a GPU", card.memory_mib // 2, need)


class MpsTraits(ModeTraits[Mps]):
    """The traits of MPS."""

    mode = Mode.MPS
    description = "Containers compute on a GPU at the same time, through NVIDIA MPS."
    pool_name = "serving"
    starter_card = "l40s"
    takes_claims = False
    has_daemon = True
    uncounted_mib = _UNCOUNTED_MIB
    replication_key = "mps"
    mechanisms = frozenset(Mechanism) - {Mechanism.NONE}
    card_facts = (("mps", "MPS"), ("computeCapability", "compute capability"))
    replica_limit = "the device plugin admits {} MPS clients on this card"
    variants = (Variant(word="mps", divide=_divide, memory=MemoryIsolation.CAP, faults=FaultIsolation.NONE),)

    @classmethod
    def missing(cls, card: Card) -> tuple[str, str] | None:
        """Return that the card has no MPS, or none that holds clients to shares."""
        return None if has_shares(card) else ("MPS with shares", "time-slicing")

    @classmethod
    def most_replicas(cls, card: Card) -> int:
        """Return how many clients the device plugin admits on the card."""
        return card.mps_max_replicas

    @property
    def mig_strategy(self) -> str:
        """The strategy `none`: the plugin refuses MPS with `mixed`, even on nodes without MIG."""
        return "none"
