"""Parts of devices that claims ask for, and turns: each finding."""

import pytest

from tests.compiler.rules.dra_intents import A100, COUNT, HERE, PLATFORM, SHARING, SHORT, claimed
from tests.compiler.rules.intents import check, codes, found, one, pool, written


def sized(sizes: str, platform: dict[str, str] = PLATFORM, **fields: str) -> list[tuple[str, bool, str]]:
    return found(written(claimed(sizes=sizes, **fields), **platform), "GS770")


# GS763


def test_unequal_numbers_of_shares_are_refused_under_count_alone() -> None:
    pools = claimed(), claimed("batch", **A100, sharing="{mode: time-slicing, replicas: 8}")
    path, _, message = one("GS763", *pools, **COUNT)
    assert path == "/spec/pools/batch/sharing/replicas"
    assert "4 as in pool notebooks, not 8" in message
    assert found(written(*pools, **PLATFORM), "GS763") == []


def test_replicas_of_instances_are_shares_too() -> None:
    mig = "{mode: mig, layout: {3g.20gb: 1, 1g.5gb: 3}, replicas: {1g.5gb: 2}}"
    assert (
        one("GS763", claimed(), claimed("training", **A100, sharing=mig), **COUNT)[0] == "/spec/pools/training/sharing/replicas"
    )
    assert found(written(claimed("training", **A100, sharing=mig), **COUNT), "GS763") == []


def test_pools_of_the_device_plugin_divide_as_they_like() -> None:
    other = pool("batch", **A100, sharing="{mode: time-slicing, replicas: 8}")
    assert found(written(claimed(), other, **COUNT), "GS763") == []


# GS767 and quotas


def test_a_number_of_claims_of_several_sizes_is_reported_with_what_it_may_hold() -> None:
    quotas = "{atlas: {notebooks: 8}}"
    path, _, message = one("GS767", claimed(sizes="{large: 7680Mi, half: 1Gi}"), **PLATFORM, quotas=quotas)
    assert path == "/spec/quotas/atlas/notebooks"
    assert message.endswith("8 claims of size large of pool notebooks hold 60Gi")
    assert found(written(claimed(), **PLATFORM, quotas=quotas), "GS767") == []


def test_memory_cannot_be_counted_in_claims_of_several_sizes() -> None:
    quotas = "{atlas: {notebooks: {memory: 56Gi}}}"
    message = one("GS604", claimed(sizes="{large: 7680Mi}"), **PLATFORM, quotas=quotas)[2]
    assert message == "claims of pool notebooks have several sizes, so memory cannot be counted in shares"
    assert found(written(claimed(), **PLATFORM, quotas=quotas), "GS604") == []


def test_a_quota_is_compared_with_the_claims_of_all_nodes() -> None:
    nodes = "{names: [a, b]}"
    assert found(written(claimed(nodes=nodes), **PLATFORM, quotas="{atlas: {notebooks: 32}}"), "GS606") == []
    assert "16 on each of 2 nodes" in one("GS606", claimed(nodes=nodes), **PLATFORM, quotas="{atlas: {notebooks: 33}}")[2]


# GS769 and GS771


def test_more_memory_than_a_gpu_has_is_refused_under_memory_alone() -> None:
    memory = "{cap: 5Gi, oversubscribe: 150%}"
    assert one("GS769", claimed(memory=memory), **PLATFORM)[0] == f"{HERE}/memory/oversubscribe"
    assert found(written(claimed(memory=memory), **COUNT), "GS769") == []
    assert found(written(claimed(memory="{oversubscribe: 150%}"), **PLATFORM), "GS769") == [], "GS508 reports it"


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        ("even", ""),
        ("3724Mi", ""),
        ("3723Mi", "asks for 3840Mi of Tesla T4, and its containers may use 3723Mi"),
        ("none", "asks for 3840Mi of Tesla T4, and without a cap its containers may use all"),
    ],
)
def test_a_cap_that_differs_from_the_claim_is_reported(cap: str, words: str) -> None:
    reported = found(written(claimed(memory=f"{{cap: {cap}}}"), **PLATFORM), "GS771")
    assert [path for path, _, _ in reported] == ([f"{HERE}/memory/cap"] if words else [])
    assert all(words in message for _, _, message in reported)
    assert found(written(claimed(memory=f"{{cap: {cap}}}"), **COUNT), "GS771") == []


def test_the_caps_of_instances_are_compared_by_profile() -> None:
    memory = "{cap: {3g.20gb: 1Gi}}"
    assert one("GS771", claimed(**A100, sharing=SHARING["mig-replicas"], memory=memory), **PLATFORM)[0] == (
        f"{HERE}/memory/cap/3g.20gb"
    )


# GS770


@pytest.mark.parametrize(
    ("sizes", "place", "words"),
    [
        ("{large: 7680Mi}", None, ""),
        ("{all: 15360Mi}", None, ""),
        ("{one: 2Mi}", None, ""),
        ("{large: 15361Mi}", "large", "more than the 15360Mi of Tesla T4"),
        ("{large: 7680}", "large", "a size of 7680 bytes is less than 1Mi"),
        ("{one: 1Mi}", "one", "would have no usable memory"),
        ("{share: 1Gi}", "share", "a claim named share already"),
        ("{gpu: 1Gi}", "gpu", "a claim named gpu already"),
        ("{3g.20gb: 1Gi}", "3g.20gb", "invalid name of a size '3g.20gb'"),
        ("{Large: 1Gi}", "Large", "invalid name of a size 'Large'"),
    ],
)
def test_a_size_has_a_name_of_its_own_and_fits_the_gpu(sizes: str, place: str | None, words: str) -> None:
    reported = sized(sizes)
    assert [path for path, _, _ in reported] == ([f"{HERE}/sizes/{place}"] if place else [])
    assert all(words in message for _, _, message in reported)


@pytest.mark.parametrize(
    ("fields", "platform", "words"),
    [
        ({"backend": "device-plugin"}, PLATFORM, "has the device plugin"),
        ({"sharing": "{mode: exclusive}"}, PLATFORM, "does not share whole GPUs"),
        ({**A100, "sharing": SHARING["mig-replicas"]}, PLATFORM, "does not share whole GPUs"),
        ({}, COUNT, "claims do not ask for memory"),
    ],
)
def test_only_time_slicing_by_memory_has_sizes(fields: dict[str, str], platform: dict[str, str], words: str) -> None:
    ((path, on_key, message),) = sized("{large: 7680Mi}", platform, **fields)
    assert (path, on_key) == (f"{HERE}/sizes", True)
    assert words in message


# GS775

P4 = {"card": "p4", "nodes": "{matchLabels: {node.example.org/flavour: gpu-p4}}"}


@pytest.mark.parametrize("interval", ["short", "medium", "long"])
def test_turns_on_whole_gpus_of_dra_have_an_interval(interval: str) -> None:
    sharing = SHORT.replace("short", interval)
    assert codes(claimed(sharing=sharing), **PLATFORM) == codes(claimed(sharing=sharing), **COUNT) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sharing": SHORT, "backend": "device-plugin"}, "the device plugin sets no interval"),
        ({**A100, "sharing": "{mode: mig, layout: {3g.20gb: 2}, replicas: 2, interval: long}"}, "not on MIG instances"),
        ({**A100, "sharing": "{mode: mig, layout: on-demand, interval: long}"}, "not on MIG instances"),
        ({**P4, "sharing": SHORT}, "cannot be set"),
    ],
)
def test_an_interval_that_nothing_sets_is_refused(fields: dict[str, str], words: str) -> None:
    place, is_refused, message = one("GS775", claimed(**fields), **PLATFORM)
    assert (place, is_refused) == (f"{HERE}/sharing/interval", True)
    assert words in message


@pytest.mark.parametrize("mode", ["exclusive", "mps", "partition", "vgpu"])
def test_other_modes_have_no_interval(mode: str) -> None:
    sharing = SHARING[mode].replace("}", ", interval: short}")
    messages = {finding.message for finding in check(written(claimed(sharing=sharing, **A100), **PLATFORM))}
    assert f"interval does not belong to mode {mode}" in messages


def test_with_an_interval_gpus_that_have_none_are_refused_on_the_same_driver_alone() -> None:
    old = {"name": "old", **P4, "sharing": "{mode: exclusive}"}
    place, _, message = one("GS775", claimed(sharing=SHORT), claimed(**old), **PLATFORM)
    assert place == "/spec/pools/old/card"
    assert "no claim on a Tesla P4 of pool old ends" in message
    assert codes(claimed(sharing=SHORT), claimed(**old, backend="device-plugin"), **PLATFORM) == []
    assert codes(claimed(), claimed(**old), **PLATFORM) == []
