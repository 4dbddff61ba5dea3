"""Every card of AMD's with every compute mode, memory mode, stack and naming compiles or is refused, and how.

What exists is written here in another form than in the catalogue: by the number of compute dies, after the driver's rule, less
what firmware and programs do not have.
"""

from itertools import product

import pytest

from gpushare.core.diagnostics import Severity, is_error
from gpushare.facts.catalog import cards
from gpushare.offering import modes
from gpushare.offering.modes.partition import find
from tests.compiler.rules.intents import check, pool, written

AMD = [name for name in cards.ids() if cards.load(name).vendor == "amd"]

COMPUTE = ("SPX", "DPX", "TPX", "QPX", "CPX")
MEMORY = ("NPS1", "NPS2", "NPS4")

DIES = {"mi300a": 6, "mi300x": 8, "mi308x": 4, "mi325x": 8, "mi350p": 4, "mi350x": 8, "mi355x": 8}
"""The compute dies (XCDs) of the cards that can be divided."""

OF_DIES = {8: ("SPX", "DPX", "QPX", "CPX"), 6: ("SPX", "TPX", "CPX"), 4: ("SPX", "DPX", "CPX")}
"""The compute modes that the driver has for so many dies."""

WITH = {"SPX": ("NPS1",), "DPX": ("NPS1", "NPS2"), "TPX": ("NPS1",), "QPX": ("NPS1", "NPS4"), "CPX": ("NPS1", "NPS4")}
"""The memory modes that the driver lets a compute mode have."""

FIRMWARE = {"mi300a": ("NPS1",), "mi350p": ("NPS1",), "mi350x": ("NPS1", "NPS2"), "mi355x": ("NPS1", "NPS2")}
"""The memory modes of cards that lack some: NPS4 of the MI350 series occurs in negative tests only."""

UNCONFIRMED = {
    ("mi308x", "DPX", "NPS2"),
    ("mi308x", "CPX", "NPS4"),
    ("mi350x", "CPX", "NPS2"),
    ("mi355x", "CPX", "NPS2"),
    *(("mi350p", compute, "NPS1") for compute in OF_DIES[4]),
}
"""Pairs for which sources disagree or are missing; CPX with NPS2 the driver has in virtual machines only."""


def exists(card: str, compute: str, memory: str) -> bool:
    if (card, compute, memory) in UNCONFIRMED:
        return True
    has_compute = compute in OF_DIES[DIES[card]] if card in DIES else False
    return has_compute and memory in WITH[compute] and memory in FIRMWARE.get(card, MEMORY)


def partition(compute: str, memory: str, strategy: str = "mixed") -> str:
    return f"{{mode: partition, compute: {compute}, memory: {memory}, strategy: {strategy}}}"


def intent(card: str, sharing: str, stack: str = "amd-gpu-operator", **more: str) -> str:
    return written(pool("research", card, sharing=sharing, **more), platform=f"{{stack: {stack}}}")


def errors(text: str) -> list[str]:
    return sorted({finding.code for finding in check(text) if is_error(finding)})


def warnings(text: str) -> set[str]:
    return {finding.code for finding in check(text) if finding.severity is Severity.WARNING} - {"GS725"}


def expected(card: str, compute: str, memory: str, stack: str, strategy: str) -> list[str]:
    codes = []
    if not exists(card, compute, memory):
        codes.append("GS321")
    elif compute == "TPX" and stack == "amd-gpu-operator":
        codes.append("GS323")
    if strategy == "mixed" and stack == "amd-device-plugin":
        codes.append("GS753")
    return codes


def test_the_cards_are_those_of_the_catalogue() -> None:
    assert set(DIES) == {name for name in AMD if cards.load(name).partition_modes}
    assert {name for name in AMD if name not in DIES} == {"mi100", "mi210", "mi250", "mi250x"}


@pytest.mark.parametrize("card", AMD)
def test_every_pair_compiles_or_is_refused(card: str) -> None:
    pairs = {f"{compute}-{memory}".lower(): (compute, memory) for compute, memory in product(COMPUTE, MEMORY)}
    for stack, strategy in product(("amd-gpu-operator", "amd-device-plugin", "existing"), ("mixed", "single")):
        pools = [
            pool(name, card, nodes=f"{{matchLabels: {{node.example.org/mode: {name}}}}}", sharing=partition(*pair, strategy))
            for name, pair in pairs.items()
        ]
        found = check(written(*pools, platform=f"{{stack: {stack}}}"))
        for name, pair in pairs.items():
            of_pool = [one for one in found if one.path[:3] == ("spec", "pools", name)]
            wrong = sorted(one.code for one in of_pool if is_error(one))
            assert wrong == expected(card, *pair, stack, strategy), (pair, stack, strategy)
            is_doubtful = (card, *pair) in UNCONFIRMED
            assert any(one.code == "GS209" for one in of_pool) == is_doubtful, (pair, stack, strategy)


@pytest.mark.parametrize("card", DIES)
def test_partitions_are_as_many_as_the_mode_says_and_no_larger_than_their_part(card: str) -> None:
    loaded = cards.load(card)
    for mode in loaded.partition_modes:
        number = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": DIES[card]}[mode.compute]
        assert mode.partitions == number
        assert mode.memory_mib is not None
        assert loaded.memory_mib is not None
        assert mode.memory_mib * number <= loaded.memory_mib, (mode.name, "a partition has at most its part")


def test_a_refused_pair_names_the_legal_ones() -> None:
    found = next(one for one in check(intent("mi300x", partition("SPX", "NPS4"))) if one.code == "GS321")
    assert found.message == "an Instinct MI300X has no SPX with NPS4"
    legal = "SPX with NPS1, DPX with NPS1 or NPS2, QPX with NPS1 or NPS4 and CPX with NPS1 or NPS4"
    assert found.hints == (f"Instinct MI300X has {legal}",)
    assert found.path == ("spec", "pools", "research", "sharing", "compute")


OF_NVIDIA = {
    "time-slicing": "{mode: time-slicing, replicas: 2}",
    "mps": "{mode: mps, replicas: 2}",
    "mig": "{mode: mig, goal: most-instances}",
    "vgpu": "{mode: vgpu, profile: A10-12Q}",
}


@pytest.mark.parametrize("card", AMD)
def test_modes_of_nvidia_say_what_exists_instead(card: str) -> None:
    assert {*OF_NVIDIA, "exclusive", "partition"} == {mode.mode.value for mode in modes.MODES}
    for mode, sharing in OF_NVIDIA.items():
        found = [one for one in check(intent(card, sharing)) if one.code == "GS320"]
        assert [one.message.split(",")[0] for one in found] == [f"AMD has no {mode}"]
        assert ("mode: partition" in found[0].hints[0]) == (card in DIES and card != "mi350p")
        assert "mode: exclusive" in found[0].hints[0]
        assert ("nothing divides this card" in found[0].hints[0]) == (card not in DIES)


@pytest.mark.parametrize("stack", ["amd-gpu-operator", "existing"])
def test_vgpus_of_amd_are_not_asked_for_what_nvidias_need(stack: str) -> None:
    assert errors(intent("mi300x", OF_NVIDIA["vgpu"], stack)) == ["GS320"]


@pytest.mark.parametrize("sharing", [partition("CPX", "NPS4"), "{mode: exclusive}"])
@pytest.mark.parametrize("mechanism", ["auto", "driver", "watcher", "mps"])
def test_no_mechanism_caps_anything_on_amds_gpus(sharing: str, mechanism: str) -> None:
    found = check(intent("mi300x", sharing, enforcement=f"{{mechanism: {mechanism}}}"))
    assert [one.code for one in found] == {"auto": [], "mps": ["GS506"]}.get(mechanism, ["GS508"])
    assert not [hint for one in found for hint in one.hints if "replicas" in hint]


def test_partitions_of_nvidia_do_not_exist() -> None:
    text = written(pool("research", "a100-sxm4-40gb", sharing=partition("CPX", "NPS4")))
    (found,) = [one for one in check(text) if is_error(one)]
    assert found.code == "GS320"
    assert found.hints == ("write mode: exclusive, mig, time-slicing or mps",)


LAYOUTS = "layouts: [{{gpus: [0, 1], compute: SPX}}, {{gpus: {}, compute: CPX}}]"


@pytest.mark.parametrize("strategy", ["mixed", "single"])
def test_several_modes_on_a_node_need_names_by_mode(strategy: str) -> None:
    sharing = f"{{mode: partition, memory: NPS1, strategy: {strategy}, {LAYOUTS.format([2, 3])}}}"
    text = intent("mi300x", sharing)
    assert errors(text) == (["GS322"] if strategy == "single" else [])
    assert "GS324" in warnings(text)


@pytest.mark.parametrize(("compute", "hint"), [("SPX", "write strategy: single"), ("CPX", "write one compute mode")])
def test_the_hint_on_names_by_mode_does_not_lead_to_an_exit_of_the_plugin(compute: str, hint: str) -> None:
    layouts = f"[{{gpus: [0, 1], compute: SPX}}, {{gpus: [2, 3], compute: {compute}}}]"
    text = intent("mi300x", f"{{mode: partition, memory: NPS1, layouts: {layouts}}}", "amd-device-plugin")
    assert [one.hints[0].startswith(hint) for one in check(text) if one.code == "GS753"] == [True]


@pytest.mark.parametrize("gpus", [[2], [2, 2, 3], [2, 3, 4]])
def test_layouts_name_every_gpu_once(gpus: list[int]) -> None:
    sharing = f"{{mode: partition, memory: NPS1, {LAYOUTS.format(gpus)}}}"
    assert errors(intent("mi300x", sharing)) == ["GS404"]


def test_a_legal_pair_of_each_entry_is_checked_with_the_memory_mode_of_the_node() -> None:
    sharing = f"{{mode: partition, memory: NPS4, {LAYOUTS.format([2, 3])}}}"
    found = [one.path for one in check(intent("mi300x", sharing)) if one.code == "GS321"]
    assert found == [("spec", "pools", "research", "sharing", "layouts", 0, "compute")]


@pytest.mark.parametrize(
    ("platform", "card", "code"),
    [
        ("{}", "mi300x", "GS751"),
        ("{stack: device-plugin}", "mi210", "GS751"),
        ("{stack: existing}", "mi300x", None),
        ("{stack: amd-gpu-operator}", "mi300x", None),
        ("{stack: amd-gpu-operator}", "l4", "GS751"),
        ("{amd: {stack: amd-gpu-operator}}", "l4", "GS751"),
        ("{stack: amd-gpu-operator, version: v1.2.2}", "mi300x", "GS752"),
        ("{stack: amd-gpu-operator, version: v1.2.2}", "mi210", None),
        ("{stack: amd-gpu-operator, version: v1.3.1}", "mi300x", None),
        ("{stack: amd-gpu-operator, version: v1.3.1}", "mi355x", "GS752"),
        ("{stack: amd-gpu-operator, version: v1.5.0}", "mi350p", "GS752"),
        ("{stack: amd-gpu-operator, version: '1.5'}", "mi300x", "GS752"),
        ("{stack: existing, amd: {stack: existing, version: v1.5.1}}", "mi300x", "GS752"),
        ("{stack: amd-device-plugin, version: 0.21.0}", "mi300x", None),
        ("{stack: amd-device-plugin, version: v0.21.0}", "mi300x", "GS752"),
        ("{stack: amd-device-plugin, version: '0.21.0; reboot'}", "mi300x", "GS752"),
        ('{stack: amd-device-plugin, version: "0.21.0\\n"}', "mi300x", "GS752"),
        ("{stack: amd-gpu-operator, amd: {namespace: rocm}}", "mi300x", "GS751"),
        ("{stack: existing, version: v1.5.1}", "mi300x", "GS752"),
        ("{stack: existing, values: {kmm: {watch: true}}}", "mi300x", "GS752"),
        ("{stack: existing, namespace: rocm, amd: {stack: existing}}", "mi300x", "GS706"),
        ("{stack: amd-gpu-operator, charts: 'oci://registry.example.org/charts'}", "mi300x", "GS706"),
        ("{stack: existing, charts: 'oci://registry.example.org/charts'}", "mi300x", "GS706"),
        ("{stack: existing, runtimeClass: nvidia}", "mi300x", "GS750"),
        ("{stack: amd-gpu-operator, runtimeClass: nvidia}", "mi300x", "GS750"),
    ],
)
def test_a_stack_serves_the_cards_of_its_vendor(platform: str, card: str, code: str | None) -> None:
    found = check(written(pool("research", card, sharing="{mode: exclusive}"), platform=platform))
    assert [one.code for one in found if is_error(one)] == ([code] if code else [])


@pytest.mark.parametrize(
    ("platform", "is_beside", "hint"),
    [
        ("{stack: existing}", False, "{namespace: kube-amd-gpu}"),
        ("{stack: existing, namespace: rocm}", False, None),
        ("{stack: existing, namespaces: [rocm]}", False, None),
        ("{amd: {stack: existing}}", True, "{amd: {stack: existing, namespace: kube-amd-gpu}}"),
        ("{stack: existing, namespace: nvidia}", True, "{amd: {stack: existing, namespace: kube-amd-gpu}}"),
        ("{stack: existing, namespace: nvidia, amd: {stack: existing, namespace: rocm}}", True, None),
        ("{stack: amd-gpu-operator}", False, None),
    ],
)
def test_the_namespace_of_installed_programs_is_stated(platform: str, is_beside: bool, hint: str | None) -> None:
    beside = pool("gpu", "l4", "{matchLabels: {node.example.org/flavour: l4}}", sharing="{mode: exclusive}")
    pools = [pool("research", "mi210", sharing="{mode: exclusive}"), *([beside] if is_beside else [])]
    found = [one.hints[0] for one in check(written(*pools, platform=platform)) if one.code == "GS622"]
    assert [one.removeprefix("write platform: ").partition(", with ")[0] for one in found] == ([hint] if hint else [])


@pytest.mark.parametrize(
    ("stack", "version", "is_newest"),
    [
        ("amd-gpu-operator", "v1.5.1", True),
        ("amd-gpu-operator", "v1.4.0", False),
        ("amd-gpu-operator", "v9.0.0", False),
        ("amd-device-plugin", "0.21.0", True),
        ("amd-device-plugin", "0.19.0", False),
    ],
)
def test_values_and_images_are_those_of_the_newest_release(stack: str, version: str, is_newest: bool) -> None:
    found = check(
        written(pool("research", "mi210", sharing="{mode: exclusive}"), platform=f"{{stack: {stack}, version: {version}}}")
    )
    assert [(one.code, one.path) for one in found] == ([] if is_newest else [("GS705", ("spec", "platform", "version"))])


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_stack_of_amds_that_does_not_serve_nvidias_cards_stays_where_it_serves(is_beside: bool) -> None:
    whole = "{mode: exclusive}"
    beside = pool("research", "mi210", "{matchLabels: {node.example.org/flavour: mi210}}", sharing=whole)
    pools = [pool("gpu", "l4", sharing=whole), *([beside] if is_beside else [])]
    [found] = [one for one in check(written(*pools, platform="{stack: amd-gpu-operator}")) if is_error(one)]
    more = " and amd: {stack: amd-gpu-operator}" if is_beside else ""
    assert (found.code, found.hints) == ("GS751", (f"write stack: gpu-operator{more}",))


@pytest.mark.parametrize(("stack", "most"), [("amd-gpu-operator", 37), ("amd-device-plugin", 48), ("existing", 48)])
def test_names_that_amds_operator_makes_of_a_pools_name_fit_into_a_service(stack: str, most: int) -> None:
    assert len(f"gpushare-{'p' * 37}-metrics-exporter") == 63
    for length, wrong in ((most, []), (most + 1, ["GS205"])):
        assert (
            errors(written(pool("p" * length, "mi210", sharing="{mode: exclusive}"), platform=f"{{stack: {stack}}}")) == wrong
        )


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"platform": "{stack: amd-gpu-operator, namespace: gpu-system}"}, ("spec", "platform", "namespace")),
        ({"namespace": "kube-amd-gpu", "platform": "{stack: amd-gpu-operator}"}, ("spec", "namespace")),
        ({"platform": "{stack: amd-device-plugin, namespace: gpu-system}"}, None),
        ({"platform": "{stack: existing, namespace: gpu-system}"}, None),
    ],
)
def test_amds_operator_has_a_namespace_of_its_own(settings: dict[str, str], path: tuple[str, ...] | None) -> None:
    found = check(written(pool("research", "mi210", sharing="{mode: exclusive}"), **settings))
    assert [(one.code, one.path) for one in found if is_error(one)] == ([("GS717", path)] if path else [])


@pytest.mark.parametrize(
    ("platform", "namespace"),
    [
        ("{stack: amd-gpu-operator}", "kube-amd-gpu"),
        ("{stack: existing, namespace: rocm}", "rocm"),
        ("{amd: {stack: amd-device-plugin, namespace: rocm}}", "rocm"),
    ],
)
def test_the_namespace_of_amds_programs_is_no_tenants(platform: str, namespace: str) -> None:
    whole = "{mode: exclusive}"
    pools = [pool("a", "mi210", "{names: [n1]}", whole, namespaces=f"[team, {namespace}]")]
    pools += [pool("b", "l4", "{names: [n2]}", whole)] if "amd:" in platform else []
    found = check(written(*pools, platform=platform))
    assert [(one.code, one.path[-1]) for one in found if is_error(one)] == [("GS625", 1)]


def test_both_vendors_in_one_intent_need_both_stacks() -> None:
    nodes = "{matchLabels: {node.example.org/flavour: gpu-l4}}"
    whole = pool("b", "l4", nodes, sharing="{mode: exclusive}")
    pools = pool("a", "mi300x", sharing=partition("CPX", "NPS4")), whole
    assert errors(written(*pools, platform="{amd: {}}")) == []
    assert errors(written(*pools)) == ["GS751"]


@pytest.mark.parametrize(
    ("toleration", "is_refused"),
    [
        ("{operator: Exists}", True),
        ("{key: amd-dcm, operator: Exists}", True),
        ("{key: amd-dcm, operator: Exists, effect: NoSchedule}", False),
        ("{key: example.org/gpu, operator: Exists}", False),
    ],
)
def test_no_program_of_amd_stays_while_gpus_are_divided(toleration: str, is_refused: bool) -> None:
    text = intent("mi300x", partition("CPX", "NPS4"), tolerations=f"[{toleration}]")
    assert errors(text) == (["GS223"] if is_refused else [])


def test_the_mode_of_whole_gpus_is_a_fact_too() -> None:
    assert "GS209" in warnings(intent("mi350p", "{mode: exclusive}"))
    assert not [card for card in AMD if card != "mi350p" and "GS209" in warnings(intent(card, "{mode: exclusive}"))]


def test_a_mode_that_the_manager_refuses_compiles_as_the_hint_says() -> None:
    found = next(one for one in check(intent("mi300a", partition("TPX", "NPS1"))) if one.code == "GS323")
    assert found.hints[1].endswith("stack: amd-device-plugin and strategy: single")
    assert errors(intent("mi300a", partition("TPX", "NPS1", "single"), "amd-device-plugin")) == []


def test_a_card_of_ones_own_is_nvidias() -> None:
    own = '{mine: {name: AMD Instinct MI999X, computeCapability: "9.0", memoryMiB: 12288}}'
    text = written(pool("research", "mine", sharing=partition("CPX", "NPS1")), cards=own)
    found = next(one for one in check(text) if one.code == "GS320")
    assert found.message == "NVIDIA has no partition, and a card of spec.cards is NVIDIA's"
    assert found.hints[1] == "cards under spec.cards are NVIDIA's: AMD's are those of the catalogue"


@pytest.mark.parametrize(
    ("card", "is_amds"),
    [
        ("mi999x", True),
        ("AMD Instinct X", True),
        ("instinct-9", True),
        ("w7900", True),
        ("v100x", False),
        ("a999", False),
        ("mig-card", False),
    ],
)
def test_no_one_is_told_to_describe_a_card_of_amds(card: str, is_amds: bool) -> None:
    found = next(one for one in check(intent(card, "{mode: exclusive}", "gpu-operator")) if one.code == "GS201")
    assert ("AMD's are those of the catalogue" in found.hints[-1]) == is_amds
    assert ("nvidia-smi" in found.hints[-1]) != is_amds


def test_a_cap_is_refused_because_the_partition_bounds_memory() -> None:
    text = intent("mi300x", partition("CPX", "NPS4"), memory="{cap: 8Gi}")
    assert errors(text) == ["GS502"]


@pytest.mark.parametrize(("stack", "section"), [("gpu-operator", "node-feature-discovery"), ("device-plugin", "nfd")])
@pytest.mark.parametrize(("amd", "codes"), [("amd-gpu-operator", ["GS711"]), ("amd-device-plugin", [])])
def test_the_rule_that_labels_amds_nodes_is_ours(stack: str, section: str, amd: str, codes: list[str]) -> None:
    own = f"{{{section}: {{worker: {{config: {{sources: {{custom: []}}}}}}}}}}"
    pools = pool("a", "mi210", "{names: [n1]}", "{mode: exclusive}"), pool("b", "l4", "{names: [n2]}", "{mode: exclusive}")
    assert errors(written(*pools, platform=f"{{stack: {stack}, values: {own}, amd: {{stack: {amd}}}}}")) == codes


@pytest.mark.parametrize("tool", ["argocd", "flux"])
@pytest.mark.parametrize(
    ("stack", "adoption", "codes"),
    [
        ("amd-gpu-operator", "enforce", ["GS754"]),
        ("amd-device-plugin", "enforce", ["GS754"]),
        ("amd-gpu-operator", "observe", []),
        ("existing", "enforce", []),
    ],
)
def test_no_tool_syncs_amds_chart(tool: str, stack: str, adoption: str, codes: list[str]) -> None:
    key = {"argocd": "repoURL", "flux": "url"}[tool]
    settings = f"{{{tool}: {{{key}: 'https://git.example.org/gpu.git', path: clusters/bundle}}}}"
    whole = pool("research", "mi210", sharing="{mode: exclusive}")
    assert errors(written(whole, platform=f"{{stack: {stack}}}", gitops=settings, adoption=adoption)) == codes


def test_find_returns_none_for_a_pair_that_is_not_there() -> None:
    assert find(cards.load("mi300x"), "SPX", "NPS4") is None


@pytest.mark.parametrize(
    ("stack", "values", "code"),
    [
        ("amd-gpu-operator", "{kmm: {watch: false}, controllerManager: {replicas: 2}}", None),
        ("amd-gpu-operator", "{controllerManager: {replica: 2}}", "GS708"),
        ("amd-gpu-operator", "{controllerManager: 2}", "GS710"),
        ("amd-gpu-operator", "{controllerManager: {manager: null}}", "GS710"),
        ("amd-gpu-operator", "{node-feature-discovery: null}", "GS710"),
        ("amd-gpu-operator", "{global: null}", "GS710"),
        ("amd-gpu-operator", "{remediation: null}", "GS710"),
        ("amd-gpu-operator", "{controllerManager: {affinity: null}}", None),
        ("amd-gpu-operator", "{kmm.enabled: false}", "GS708"),
        ("amd-gpu-operator", "{installdefaultNFDRule: true}", None),
        ("amd-gpu-operator", "{node-feature-discovery: {enabled: false, master: {replicas: 2}}}", None),
        ("amd-gpu-operator", "{node-feature-discovery: {worker: {tolerations: []}}}", "GS711"),
        ("amd-gpu-operator", "{kmm: {controller: {nodeSelector: {node.example.org/role: infra}}}}", None),
        ("amd-gpu-operator", "{controllerManager: {replicas: two}}", "GS710"),
        ("amd-gpu-operator", "{upgradeCRD: 1}", "GS710"),
        ("amd-gpu-operator", "{upgradeCRD: null}", None),
        ("amd-gpu-operator", "{deviceConfig: {spec: {driver: {enable: true}}}}", "GS711"),
        ("amd-gpu-operator", "{crds: {defaultCR: {install: true}}}", "GS711"),
        ("amd-device-plugin", "{dp: {resources: {limits: {cpu: 1}}}}", None),
        ("amd-device-plugin", "{dp: {image: {tag: latest}}}", "GS711"),
        ("amd-device-plugin", "{lbl: {image: {tag: latest}}}", "GS711"),
        ("amd-device-plugin", "{lbl: {resources: {limits: {cpu: 1}}}, labeller: {enabled: true}}", None),
        ("amd-device-plugin", "{nfd: null}", "GS710"),
        ("amd-device-plugin", "{replicas: 2}", "GS708"),
    ],
)
@pytest.mark.parametrize("is_alone", [True, False])
def test_values_are_judged_by_amds_chart(stack: str, values: str, code: str | None, is_alone: bool) -> None:
    own = f"stack: {stack}, values: {values}"
    beside = pool("gpu", "l4", "{matchLabels: {node.example.org/flavour: l4}}", sharing="{mode: exclusive}")
    pools = [pool("research", "mi210", sharing="{mode: exclusive}"), *([] if is_alone else [beside])]
    found = [
        one for one in check(written(*pools, platform=f"{{{own}}}" if is_alone else f"{{amd: {{{own}}}}}")) if is_error(one)
    ]
    assert [one.code for one in found] == ([code] if code else [])
    above = ("spec", "platform", "values") if is_alone else ("spec", "platform", "amd", "values")
    assert all(one.path[: len(above)] == above for one in found)
