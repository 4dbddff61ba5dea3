"""Settings without effect, and settings that do something else than they seem to: code, place and sentence."""

import pytest

from tests.compiler.rules.intents import check, found, pool, written

L40S = {"card": "l40s", "nodes": "{matchLabels: {node.example.org/flavour: gpu-l40s}}"}
A100 = {"card": "a100-sxm4-40gb", "nodes": "{names: [n1]}"}
HERE = "/spec/pools/notebooks"


def idle(**fields: str) -> list[tuple[str, str]]:
    """(place below the pool, why it does nothing) of every GS508, all of them warnings."""
    findings = [finding for finding in check(written(pool(**fields))) if finding.code == "GS508"]
    assert all(finding.severity == "warning" and finding.hints for finding in findings)
    return [("/".join(map(str, finding.path[3:])), finding.message.partition(": ")[2]) for finding in findings]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"enforcement": "{action: evict}"}, "enforcement"),
        ({"enforcement": "{notice: 1h}"}, "enforcement"),
        ({"memory": '{oversubscribe: "150%"}'}, "memory/oversubscribe"),
        ({"memory": "{reserve: 1Mi}"}, "memory/reserve"),
    ],
)
def test_settings_without_a_shared_device_are_reported(fields: dict[str, str], place: str) -> None:
    assert idle(sharing="{mode: exclusive}", **fields) == [(place, "no device of pool notebooks is shared")]


@pytest.mark.parametrize("rename", ["true", "false"])
def test_rename_without_shares_is_reported(rename: str) -> None:
    sharing = f"{{mode: mig, layout: {{1g.5gb: 7}}, rename: {rename}}}"
    assert idle(**A100, sharing=sharing) == [("sharing/rename", "no device of pool notebooks is shared")]
    assert idle(**A100, sharing=sharing.replace("rename", "replicas: 2, rename")) == []


@pytest.mark.parametrize("cap", ["even", "none", "4Gi"])
def test_reserve_and_oversubscribe_under_mps_are_reported(cap: str) -> None:
    memory = f'{{cap: {cap}, reserve: 1Gi, oversubscribe: "200%"}}'
    assert idle(**L40S, sharing="{mode: mps, replicas: 8}", memory=memory) == [
        ("memory/reserve", "the MPS daemon divides all memory"),
        ("memory/oversubscribe", "the MPS daemon gives no client more than its share"),
    ]


def test_oversubscribe_with_even_caps_is_reported() -> None:
    why = "even caps never add up to more than the device"
    assert idle(memory='{reserve: 1Gi, oversubscribe: "200%"}') == [("memory/oversubscribe", why)]
    assert idle(memory='{cap: even, oversubscribe: "200%"}') == [("memory/oversubscribe", why)]


def test_memory_settings_without_caps_are_reported() -> None:
    assert idle(memory='{cap: none, reserve: 1Gi, oversubscribe: "200%"}', enforcement="{grace: 30s}") == [
        ("memory/reserve", "pool notebooks has no caps"),
        ("memory/oversubscribe", "pool notebooks has no caps"),
        ("enforcement", "with cap: none there is nothing to enforce"),
    ]


def test_setting_used_by_one_of_several_profiles_has_an_effect() -> None:
    sharing = "{mode: mig, layout: {2g.10gb: 1, 1g.5gb: 3}, replicas: 2}"
    memory = '{cap: {1g.5gb: none, 2g.10gb: 4Gi}, reserve: 300Mi, oversubscribe: "110%"}'
    one = {"memory": memory, "enforcement": "{grace: 30s}"}
    assert idle(**A100, sharing=sharing, **one) == []
    none = {"memory": "{cap: {1g.5gb: none, 2g.10gb: none}}", "enforcement": "{grace: 30s}"}
    assert idle(**A100, sharing=sharing, **none) == [("enforcement", "with cap: none there is nothing to enforce")]


def test_reserve_affects_a_memory_goal() -> None:
    assert idle(**A100, sharing="{mode: mig, goal: {memory: 9Gi}, replicas: 2}", memory="{cap: none, reserve: 1Gi}") == []
    assert idle(**A100, sharing="{mode: mig, layout: {1g.5gb: 7}}", memory="{reserve: 1Mi}") == []


def test_drain_timeout_with_on_busy_fail_is_reported() -> None:
    why = ("rollout/drainTimeout", "onBusy: fail waits for no pod")
    assert idle(rollout="{onBusy: fail, drainTimeout: 30m}") == [why]
    assert idle(sharing="{mode: exclusive}", rollout="{onBusy: fail, drainTimeout: 5m}") == [why]
    assert idle(rollout="{onBusy: fail}") == idle(rollout="{onBusy: evict, drainTimeout: 5m}") == []


def test_effective_settings_are_not_reported() -> None:
    assert idle(memory='{cap: 4Gi, reserve: 1Gi, oversubscribe: "150%"}', enforcement="{action: evict}") == []


@pytest.mark.parametrize(
    ("enforcement", "without"),
    [
        ("{action: none, grace: 10m, notice: 72h}", ["grace", "notice"]),
        ("{action: none, notice: 0s, tolerance: 5%}", ["notice"]),
        ("{action: warn, notice: 72h, grace: 10m}", ["notice"]),
        ("{action: evict, notice: 72h, grace: 10m}", []),
        ("{action: none}", []),
    ],
)
def test_enforcement_settings_without_a_kill_are_reported(enforcement: str, without: list[str]) -> None:
    assert [place for place, _ in idle(enforcement=enforcement)] == [f"enforcement/{setting}" for setting in without]


def test_admission_scope_without_policies_is_reported() -> None:
    admission = "{enforce: none, scope: cluster, localhostProfiles: [own]}"
    places = [path for path, _, _ in found(written(pool(), admission=admission), "GS508")]
    assert places == ["/spec/admission/scope", "/spec/admission/localhostProfiles"]
    assert found(written(pool(), admission="{enforce: audit, scope: cluster, localhostProfiles: [own]}"), "GS508") == []


def test_quota_without_limits_is_reported() -> None:
    assert [path for path, _, _ in found(written(pool(), quotas="{atlas: {}}"), "GS508")] == ["/spec/quotas/atlas"]
    assert found(written(pool(), quotas="{atlas: {notebooks: 0}}"), "GS508") == []


def test_mechanism_with_its_own_finding_is_not_reported_twice() -> None:
    assert idle(**A100, sharing="{mode: mig, layout: {1g.5gb: 7}}", enforcement="{mechanism: driver}") == []


@pytest.mark.parametrize(("card", "each"), [("l40s", 5758), ("t4", 1920), ("p100-pcie-16gb", None)])
def test_implicit_mps_memory_limit_is_reported(card: str, each: int | None) -> None:
    text = written(pool(card=card, sharing="{mode: mps, replicas: 8}", memory="{cap: none}"))
    message = f"with cap: none the MPS daemon still gives each of 8 clients {each}Mi at most"
    assert found(text, "GS512") == ([(f"{HERE}/memory/cap", False, message)] if each else [])
    assert not found(text.replace("none}", "even}"), "GS512")


@pytest.mark.parametrize(
    ("platform", "version"),
    [
        ('{driver: {version: "595.91.07"}}', "595.91.07"),
        ("{driver: {}}", "595.91.07"),
        ("{driver: {}, version: v25.10.1}", "580.105.08"),
        ('{driver: {version: "614.99"}}', "614.99"),
        ('{driver: {version: "615.0"}}', None),
        ("{driver: {}, version: v99.1.0}", None),
        ('{driver: {version: "sha256:' + "0" * 64 + '"}}', None),
        ("{}", None),
        ("{stack: device-plugin}", None),
    ],
)
def test_driver_without_memory_limits_is_reported(platform: str, version: str | None) -> None:
    text = written(pool(enforcement="{mechanism: driver}"), platform=platform)
    message = f"driver {version} has no memory limits, so no cap of pool notebooks is enforced"
    assert found(text, "GS513") == ([(f"{HERE}/enforcement/mechanism", False, message)] if version else [])
    assert not found(text.replace("mechanism: driver", "mechanism: auto"), "GS513")


def test_cap_larger_than_the_device_is_reported() -> None:
    memory = '{cap: 16Gi, oversubscribe: "900%"}'
    assert found(written(pool(memory=memory)), "GS514") == [
        (f"{HERE}/memory/cap", False, "a cap of 16Gi is more than the whole device, which has 15360Mi")
    ]
    assert not found(written(pool(memory=memory.replace("16Gi", "15Gi"))), "GS514")
    by_profile = pool(
        **A100, sharing="{mode: mig, layout: {1g.5gb: 7}, replicas: 2}", memory='{cap: {1g.5gb: 5Gi}, oversubscribe: "900%"}'
    )
    assert [place for place, _, _ in found(written(by_profile), "GS514")] == [f"{HERE}/memory/cap/1g.5gb"]


def test_oversubscribing_caps_are_reported() -> None:
    text = written(pool(memory='{cap: 5Gi, oversubscribe: "150%"}'))
    message = "4 containers at their caps need 20480Mi, and a Tesla T4 has 14899Mi"
    assert found(text, "GS515") == [(f"{HERE}/memory/oversubscribe", False, message)]
    assert not found(text.replace("5Gi", "3Gi"), "GS515")
    assert not found(text.replace("5Gi", "6Gi"), "GS515")
    assert found(text.replace("5Gi", "6Gi"), "GS501")
