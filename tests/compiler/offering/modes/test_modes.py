"""The modes that exist are those of the schemas and the command line; what a newer gpushare names is taken for whole GPUs."""

import re

from gpushare.core import resources
from gpushare.intent.types import Mode
from gpushare.offering import modes
from gpushare_node.contract import policy


def schema_words(name: str) -> set[str]:
    """Every list of words for a `mode` in a schema, as one set."""
    lists = re.findall(r'"mode": \{[^{}]*?"enum": \[([^\]]*)\]', resources.schema(name).read_text())
    return set(re.findall(r'"([^"]+)"', "".join(lists)))


def test_every_mode_has_traits_and_is_in_the_schema() -> None:
    words = {mode.mode.value for mode in modes.MODES}
    assert words == set(Mode)
    assert schema_words("intent.v1") == words
    on_nodes = {mode.mode.value for mode in modes.MODES if not mode.serves_vms}
    assert set(policy.Mode) == on_nodes, "the node runtime has no part in pools for virtual machines"


def test_every_variant_is_compared_and_can_be_chosen() -> None:
    assert {variant.word for variant in modes.VARIANTS} == schema_words("size.v1")


def test_unknown_mode_has_no_daemon_or_partitions() -> None:
    unknown = modes.named("hologram")
    assert not unknown.has_daemon
    assert not unknown.is_partitioned
