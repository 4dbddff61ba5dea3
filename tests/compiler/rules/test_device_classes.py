"""Device classes and their names in `limits`: each finding."""

import itertools
import re

import pytest

from gpushare.facts.catalog import cards
from tests.compiler.rules.dra_intents import A100, COUNT, HERE, OTHER_T4, PLATFORM, SHARING, SHORT, claimed, hints, whole
from tests.compiler.rules.intents import found, one, pool, written

# GS764


@pytest.mark.parametrize("requests", ["limits", "both"])
@pytest.mark.parametrize(
    ("sharing", "platform", "part"),
    [
        ("time-slicing", PLATFORM, "limits get a whole A100-PCIE-40GB, which 4 pods shall share"),
        ("mig-replicas", PLATFORM, "limits get a whole instance of 3g.20gb, which 4 pods shall share"),
        ("mig-replicas", COUNT, "limits get a whole instance of 3g.20gb, which 4 pods shall share"),
    ],
)
def test_limits_that_get_a_whole_device_are_refused(sharing: str, platform: dict[str, str], part: str, requests: str) -> None:
    path, _, message = one("GS764", claimed(**A100, sharing=SHARING[sharing], requests=requests), **platform)
    assert path == f"{HERE}/requests"
    assert part in message
    assert "1.38" in message


def test_limits_of_whole_gpus_get_one_share_under_count() -> None:
    other = whole(requests="both")
    path, _, message = one("GS764", claimed(), other, **COUNT)
    assert path == "/spec/pools/whole/requests"
    assert "one of 4 shares of a GPU" in message
    assert found(written(other, **COUNT), "GS764") == [], "without a shared pool the driver has no shares"
    assert found(written(claimed(), other, **PLATFORM), "GS764") == [], "all memory is the default"


def test_limits_of_shares_also_get_whole_gpus_of_the_same_card() -> None:
    unshared = claimed("whole", nodes="{matchLabels: {node.example.org/flavour: whole}}", sharing="{mode: exclusive}")
    path, _, message = one("GS764", claimed(requests="limits"), unshared, **COUNT)
    assert path == f"{HERE}/requests"
    assert message == "pods with nvidia.com/gpu.shared in their limits also get the GPUs of pool whole, which are not shared"
    assert found(written(claimed(requests="limits"), whole(), **COUNT), "GS764") == [], "another card has another class"


# GS765


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"sharing": "{mode: exclusive}"}, True),
        ({"sharing": "{mode: time-slicing, replicas: 8}"}, True),
        ({"namespaces": "[atlas]"}, True),
        ({}, False),
        ({"sharing": "{mode: exclusive}", "backend": "device-plugin"}, False),
    ],
)
def test_pools_that_get_each_others_devices_are_reported(fields: dict[str, str], *, reported: bool) -> None:
    places = [path for path, _, _ in found(written(claimed(), claimed("b", nodes=OTHER_T4, **fields), **PLATFORM), "GS765")]
    assert places == (["/spec/pools/b/card"] if reported else [])


def test_instances_of_one_profile_are_the_same_devices_and_of_others_not() -> None:
    first = claimed("a", **A100, sharing="{mode: mig, layout: {3g.20gb: 2}}", namespaces="[atlas]")
    second = {**A100, "nodes": OTHER_T4}
    same = claimed("b", **second, sharing="{mode: mig, layout: {3g.20gb: 1, 1g.5gb: 4}}")
    other = claimed("b", **second, sharing="{mode: mig, layout: {1g.5gb: 7}}")
    assert "both have 3g.20gb" in one("GS765", first, same, **PLATFORM)[2]
    assert found(written(first, other, **PLATFORM), "GS765") == []


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        (PLATFORM, "admission sends pods with a pool's templates"),
        (PLATFORM | {"admission": "{enforce: none}"}, "pods must choose their pool"),
    ],
)
def test_the_hint_says_what_admission_does(spec: dict[str, str], hint: str) -> None:
    assert hint in hints(written(claimed(), claimed("b", nodes=OTHER_T4, namespaces="[atlas]"), **spec), "GS765")


# GS766


def test_two_classes_with_one_name_for_limits_are_refused() -> None:
    unshared = claimed(sharing="{mode: exclusive}", requests="both")
    path, _, message = one("GS766", unshared, whole(requests="limits"), **PLATFORM)
    assert path == "/spec/pools/whole/requests"
    assert "notebooks and whole would both have the name nvidia.com/gpu, which" in message
    assert found(written(unshared, whole(), **PLATFORM), "GS766") == []
    assert found(written(unshared, pool("plugin", **A100, sharing="{mode: exclusive}"), **PLATFORM), "GS766") == []


def test_a_name_that_sharing_does_not_change_is_that_of_whole_gpus() -> None:
    plain = claimed(sharing="{mode: time-slicing, replicas: 4, rename: false}", requests="limits")
    batch = claimed("batch", **A100, sharing="{mode: mig, layout: {7g.40gb: 1}, strategy: single}", requests="limits")
    assert "nvidia.com/gpu" in one("GS766", plain, batch, **COUNT)[2]


@pytest.mark.parametrize(("length", "reported"), [(46, False), (47, True)])
def test_a_class_has_at_most_63_characters(length: int, *, reported: bool) -> None:
    name, sharing = "a" * length, "{mode: mig, layout: {1g.10gb: 1}}"
    text = written(claimed(name, **A100, sharing=sharing), **PLATFORM)
    assert [path for path, _, _ in found(text, "GS766")] == ([f"/spec/pools/{name}"] if reported else [])
    assert not reported or "at most 46 characters" in hints(text, "GS766")


def test_profiles_whose_classes_would_have_one_name_are_refused() -> None:
    card = {"card": "rtx-pro-6000-server", "nodes": "{matchLabels: {node.example.org/flavour: rtx}}"}
    names = [profile.name for profile in cards.load(card["card"]).profiles.values()]
    pairs = [(a, b) for a, b in itertools.combinations(names, 2) if re.sub("[.+]", "-", a) == re.sub("[.+]", "-", b)]
    for first, second in pairs:
        text = written(claimed(**card, sharing=f"{{mode: mig, layout: {{{first}: 1, {second}: 1}}}}"), **PLATFORM)
        assert [path for path, _, _ in found(text, "GS766")] == [f"{HERE}/sharing"], (first, second)
    assert pairs


@pytest.mark.parametrize(("name", "reported"), [("a-1g-5gb", True), ("a-2g-10gb", False)])
def test_an_instance_of_one_pool_and_a_gpu_of_another_may_not_have_one_class(name: str, *, reported: bool) -> None:
    parts = claimed("a", **A100, sharing="{mode: mig, layout: {1g.5gb: 7}}")
    text = written(parts, claimed(name, nodes=OTHER_T4, sharing="{mode: exclusive}"), **PLATFORM)
    assert [path for path, _, _ in found(text, "GS766")] == ([f"/spec/pools/{name}"] if reported else [])
    plugin = pool(name, nodes=OTHER_T4, sharing="{mode: exclusive}")
    assert found(written(parts, plugin, **PLATFORM), "GS766") == []


# GS773 and settings of limits


@pytest.mark.parametrize(
    ("sharing", "platform", "name"),
    [
        ("exclusive", PLATFORM, "nvidia.com/gpu"),
        ("mig", PLATFORM, "nvidia.com/mig-3g.20gb"),
        ("time-slicing", COUNT, "nvidia.com/gpu.shared"),
    ],
)
def test_limits_after_the_device_plugin_are_reported_with_the_name(sharing: str, platform: dict[str, str], name: str) -> None:
    path, _, message = one("GS773", claimed(**A100, sharing=SHARING[sharing], requests="limits"), **platform)
    assert path == f"{HERE}/requests"
    assert message.startswith(f"kubelet refuses {name} in limits on nodes")
    assert found(written(claimed(**A100, sharing=SHARING[sharing]), **platform), "GS773") == []


# GS774


def test_the_name_of_whole_gpus_is_that_of_the_drivers_own_class_too() -> None:
    path, _, message = one("GS774", claimed(sharing=SHARING["exclusive"], requests="both"), **PLATFORM)
    assert path == f"{HERE}/requests"
    assert message.startswith("device class gpu.nvidia.com, which NVIDIA's chart makes, has the name nvidia.com/gpu too")


@pytest.mark.parametrize("sharing", ["mig", "time-slicing"])
def test_other_names_are_of_no_class_of_the_drivers(sharing: str) -> None:
    assert found(written(claimed(**A100, sharing=SHARING[sharing], requests="limits"), **COUNT), "GS774") == []


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"requests": "claims", "backend": "device-plugin"}, "requests"),
        ({"sharing": "{mode: time-slicing, replicas: 4, rename: false}"}, "sharing/rename"),
        ({**A100, "sharing": "{mode: mig, layout: {7g.40gb: 1}, strategy: single}"}, "sharing/strategy"),
    ],
)
def test_settings_of_limits_have_no_effect_on_claims(fields: dict[str, str], place: str) -> None:
    other = whole("other", nodes="{matchLabels: {node.example.org/flavour: other}}", sharing=SHARING["mig"])
    paths = [path for path, _, _ in found(written(claimed(**fields), other, **PLATFORM), "GS508")]
    assert paths == [f"{HERE}/{place}"]


@pytest.mark.parametrize("sharing", ["{mode: time-slicing, replicas: 4, rename: false}", "{mode: exclusive}"])
def test_a_name_for_limits_is_compared_with_that_of_the_plugins_pools(sharing: str) -> None:
    plugin = pool("plugin", **A100, sharing="{mode: exclusive}")
    assert found(written(plugin, claimed(sharing=sharing), **COUNT), "GS210") == []
    assert (
        "nvidia.com/gpu means different things" in one("GS210", plugin, claimed(sharing=sharing, requests="both"), **COUNT)[2]
    )


def test_a_default_pool_of_claims_has_no_effect() -> None:
    plugin = pool("plugin", **A100, sharing="{mode: time-slicing, replicas: 4}")
    text = written(plugin, claimed(default="true"), **PLATFORM)
    assert [message.partition(": ")[2] for _, _, message in found(text, "GS624")] == [
        "its pods have claims, which name their pool"
    ]


def test_two_default_pools_for_one_name_are_refused_across_back_ends() -> None:
    plugin = pool("plugin", **A100, sharing="{mode: exclusive}", default="true")
    fields = {"sharing": "{mode: exclusive}", "default": "true"}
    assert one("GS623", plugin, claimed(**fields, requests="limits"), **PLATFORM)[0] == f"{HERE}/default"
    assert found(written(plugin, claimed(**fields), **PLATFORM), "GS623") == []


def test_claims_of_two_pools_with_one_card_and_two_intervals_block_each_other() -> None:
    other = claimed("b", nodes=OTHER_T4, sharing=SHORT.replace("short", "long"))
    assert one("GS765", claimed(sharing=SHORT), other, **PLATFORM)[0] == "/spec/pools/b/card"


def test_a_class_shares_the_budget_of_its_name_for_limits() -> None:
    plugin, quotas = pool("plugin", **A100, sharing="{mode: exclusive}"), "{atlas: {plugin: 2, notebooks: 3}}"
    claims = claimed(sharing="{mode: exclusive}")
    message = one("GS607", plugin, claimed(sharing="{mode: exclusive}", requests="both"), **PLATFORM, quotas=quotas)[2]
    assert message == "atlas gets one budget of 5 nvidia.com/gpu for pools plugin and notebooks together"
    assert found(written(plugin, claims, **PLATFORM, quotas=quotas), "GS607") == []
