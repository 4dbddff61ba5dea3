"""Pools for virtual machines: every card has each mode or is refused as stated, and what such a pool cannot have."""

import json

import pytest
from jsonschema import Draft7Validator

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core.diagnostics import is_error
from gpushare.core.units import is_label_value
from gpushare.facts.catalog import cards
from gpushare.intent.types import NodeSelector, Pool, Vgpu
from gpushare.offering import modes
from gpushare.reading import schema
from gpushare.resolved import plan
from tests.compiler.rules.intents import check, found, one, pool, written

MANAGER = '{vgpuManager: {repository: registry.example.org/nvidia, version: "595.71.03"}}'
SHARING = '{mode: vgpu, profile: A10-12Q, kernel: "5.15"}'
PLACE = "/spec/pools/desktops"
SMALL = {
    "exclusive": "mode: exclusive",
    "time-slicing": "mode: time-slicing, replicas: 2",
    "mps": "mode: mps, replicas: 2",
    "mig": "mode: mig, goal: most-instances",
    "vgpu": 'mode: vgpu, kernel: "5.15", profile: {}',
    "partition": "mode: partition, compute: CPX, memory: NPS4",
}
"""A pool of every mode. Of the first type that the card has, if it has one."""


NVIDIA = [name for name in cards.ids() if cards.load(name).vendor == "nvidia"]


def machines(sharing: str = SHARING, card: str = "a10", **more: str) -> str:
    return pool("desktops", card, sharing=sharing, **more)


def intent(sharing: str = SHARING, card: str = "a10", **more: str) -> str:
    return written(machines(sharing, card, **more), platform=MANAGER)


def expected(card: cards.Card, mode: str) -> str | None:
    """The code with which the pair is refused; None if it compiles. From the facts alone."""
    match mode:
        case "mps":
            assert card.compute_capability is not None
            return None if card.mps_supported and card.compute_capability >= (7, 0) else "GS302"
        case "partition":
            return "GS320"
        case "mig":
            return None if card.mig else "GS401"
        case "vgpu" if card.vgpu is None or card.vgpu.refused in {"hgx", "before-turing"}:
            return "GS310"
        case "vgpu" if card.vgpu is not None and card.vgpu.refused:
            return "GS311"
    return None


def test_the_modes_of_the_pairs_are_all_modes() -> None:
    assert set(SMALL) == {mode.mode.value for mode in modes.MODES}


@pytest.mark.parametrize("mode", SMALL)
def test_every_card_has_the_mode_or_is_refused(mode: str) -> None:
    refused = 0
    for name in NVIDIA:
        card = cards.load(name)
        types = card.vgpu.types if card.vgpu else ()
        sharing = f"{{{SMALL[mode].format(types[0].name if types else 'A10-12Q')}}}"
        uncapped = {"memory": "{cap: none}"} if mode in {"time-slicing", "mps"} else {}
        text = written(pool("desktops", name, sharing=sharing, **uncapped), **({"platform": MANAGER} if mode == "vgpu" else {}))
        wrong = [finding.code for finding in check(text) if is_error(finding)]
        code = expected(card, mode)
        assert wrong == ([code] if code else []), (name, mode)
        refused += code is not None
    assert refused < len(NVIDIA) or mode == "partition"


WITH_TYPES = [name for name in cards.ids() if (facts := cards.load(name).vgpu) and facts.types]


@pytest.mark.parametrize("name", WITH_TYPES)
def test_every_type_of_a_card_becomes_a_pool_that_kubernetes_and_nvidia_accept(name: str) -> None:
    card = cards.load(name)
    assert card.vgpu is not None
    entry = schema.load("lock.v1")["definitions"]["vgpuEntry"]
    for kind in card.vgpu.types:
        settings = Vgpu(profile=kind.name)
        wanted = Pool(name="desktops", card=name, nodes=NodeSelector(expected=2), gpus_per_node=4, sharing=settings)
        made = plan.resolve_machines(wanted, card, ())
        assert made.per_node == 4 * kind.max_count
        assert made.total == 8 * kind.max_count
        assert len(made.resource.partition("/")[2]) <= 63
        assert all(is_label_value(value) for value in made.labels.values())
        Draft7Validator(entry).validate(json.loads(json.dumps(made.config.entries[0])))


def test_a_pool_compiles_for_every_card_with_types() -> None:
    pools = []
    for name in WITH_TYPES:
        vgpu = cards.load(name).vgpu
        types = vgpu.types if vgpu else ()
        sharing = f'{{mode: vgpu, profile: {types[-1].name}, kernel: "5.15"}}'
        pools.append(pool(name, name, f"{{matchLabels: {{node.example.org/flavour: {name}}}}}", sharing))
    compilation = pipeline.compile_intent(written(*pools, platform=MANAGER).encode(), "intent.yaml", lock.EMPTY)
    assert not [finding for finding in compilation.findings if is_error(finding)]
    assert compilation.plan is not None
    assert [one.name for one in compilation.plan.vm_pools] == sorted(WITH_TYPES)
    assert compilation.plan.pools == ()


def test_a_card_that_nvidia_excludes_says_why_and_what_serves_instead() -> None:
    [finding] = [each for each in check(intent(card="h100-sxm5-80gb")) if is_error(each)]
    assert (finding.code, finding.path) == ("GS310", ("spec", "pools", "desktops", "card"))
    assert "HGX" in finding.message
    assert any("passthrough" in hint or "pass whole GPUs" in hint for hint in finding.hints)


@pytest.mark.parametrize(
    ("card", "kernel", "path"),
    [("a10", "6.0", "sharing/kernel"), ("a10", "6.8", "sharing/kernel"), ("gb200-186gb", "5.15", "card")],
)
def test_without_mediated_devices_the_pool_is_refused(card: str, kernel: str, path: str) -> None:
    where, _, message = one("GS311", machines(SHARING.replace("5.15", kernel), card), platform=MANAGER)
    assert where == f"{PLACE}/{path}"
    assert "vendor-specific VFIO" in message


@pytest.mark.parametrize("kernel", ["5.4", "5.15", "5.100"])
def test_an_older_kernel_has_no_finding(kernel: str) -> None:
    assert found(intent(SHARING.replace("5.15", kernel)), "GS311") == []
    assert found(intent(SHARING.replace("5.15", kernel)), "GS312") == []


def test_a_pool_that_does_not_state_its_kernel_is_warned() -> None:
    assert one("GS312", machines("{mode: vgpu, profile: A10-12Q}"), platform=MANAGER)[0] == f"{PLACE}/sharing"


def test_an_unknown_type_gets_the_nearest_ones() -> None:
    text = intent(SHARING.replace("A10-12Q", "A10-12B"))
    [finding] = [each for each in check(text) if each.code == "GS313"]
    assert "A10-12" in finding.hints[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory", "{cap: 4Gi}"),
        ("enforcement", "{action: warn}"),
        ("rollout", "{onBusy: evict}"),
        ("namespaces", "[atlas]"),
        ("default", "true"),
    ],
)
def test_settings_of_containers_are_refused(field: str, value: str) -> None:
    [(path, on_key, _)] = found(intent(**{field: value}), "GS314")
    assert (path, on_key) == (f"{PLACE}/{field}", True)


def test_an_autoscaler_is_refused() -> None:
    nodes = "{matchLabels: {node.example.org/flavour: gpu-a10}, autoscaler: karpenter}"
    assert one("GS314", machines(nodes=nodes), platform=MANAGER)[0] == f"{PLACE}/nodes/autoscaler"


@pytest.mark.parametrize("field", ["replicas: 2", "rename: false", "placement: pack", "layout: none", "goal: balanced"])
def test_fields_of_other_modes_are_refused(field: str) -> None:
    text = intent(SHARING.replace("{", "{" + field + ", "))
    assert [each.code for each in check(text) if is_error(each)] == ["GS108"]


def test_the_fields_of_the_mode_are_refused_in_others() -> None:
    text = written(pool(sharing="{mode: exclusive, profile: A10-12Q}"))
    assert [each.code for each in check(text) if is_error(each)] == ["GS108"]


def test_a_quota_on_the_pool_is_refused() -> None:
    path, _, _ = one("GS315", machines(), platform=MANAGER, quotas="{atlas: {desktops: 4}}")
    assert path == "/spec/quotas/atlas/desktops"


@pytest.mark.parametrize("stack", ["device-plugin", "existing"])
def test_another_stack_than_the_operator_is_refused(stack: str) -> None:
    platform = MANAGER.replace("{vgpu", f"{{stack: {stack}, vgpu")
    assert stack in one("GS316", machines(), platform=platform)[2]


def test_the_image_of_the_manager_and_the_pools_go_together() -> None:
    assert one("GS317", machines())[0] == f"{PLACE}/sharing/mode"
    assert one("GS317", pool(), platform=MANAGER)[0] == "/spec/platform/vgpuManager"


@pytest.mark.parametrize(
    "values",
    ["sandboxWorkloads: {enabled: true}", "vgpuManager: {repository: x}", "vgpuDeviceManager: {config: {default: A10-12Q}}"],
)
def test_values_that_follow_from_the_pools_are_refused(values: str) -> None:
    platform = MANAGER.replace("{vgpuManager", f"{{values: {{{values}}}, vgpuManager", 1)
    assert [path for path, _, _ in found(written(machines(), platform=platform), "GS711")]


def test_a_value_of_the_managers_that_nothing_sets_is_accepted() -> None:
    platform = MANAGER.replace("{vgpuManager", "{values: {vgpuManager: {hostNetwork: true}}, vgpuManager", 1)
    assert check(written(machines(), platform=platform)) == []


def test_a_card_whose_types_no_document_of_nvidia_lists_is_warned() -> None:
    assert "vGPU" in one("GS209", machines(SHARING.replace("A10-12Q", "L40S-24Q"), "l40s"), platform=MANAGER)[2]
