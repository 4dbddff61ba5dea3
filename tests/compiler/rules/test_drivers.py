"""Which drivers serve which cards, and by which release's chart values are judged: GS302, GS705, GS708, GS709 and GS718."""

import pytest

from tests.compiler.rules.intents import check, found, pool, written

SLICED = "{mode: time-slicing, replicas: 4}"


def wrong(card: str, platform: str, sharing: str = SLICED) -> list[str]:
    """The places that GS718 names."""
    return [path for path, _, _ in found(written(pool(card=card, sharing=sharing), platform=platform), "GS718")]


@pytest.mark.parametrize(
    ("card", "version", "serves"),
    [
        ("v100-pcie-32gb", "595.91.07", False),
        ("v100-pcie-32gb", "580.126.20", True),
        ("p100-pcie-16gb", "595.91.07", False),
        ("p100-pcie-16gb", "535.104.05", True),
        ("t4", "595.91.07", True),
        ("b200-180gb", "550.90.07", False),
        ("b200-180gb", "570.133.20", True),
        ("rtx-pro-6000-server", "565.57.01", False),
        ("b300-269gb", "570.133.20", False),
        ("b300-269gb", "580", True),
        ("gb300-278gb", "580.105.08", True),
        ("h100-sxm5-80gb", "525.85.12", True),
    ],
)
def test_a_card_has_a_first_and_a_last_branch_of_drivers(card: str, version: str, serves: bool) -> None:
    expected = [] if serves else ["/spec/platform/driver/version"]
    assert wrong(card, f'{{driver: {{version: "{version}"}}}}') == expected


def test_default_driver_of_the_release_is_checked() -> None:
    assert wrong("v100-pcie-32gb", "{driver: {}}") == ["/spec/platform/driver"]
    assert wrong("v100-pcie-32gb", "{version: v25.3.4, driver: {}}") == []
    assert wrong("b200-180gb", "{version: v24.9.2, driver: {}}") == ["/spec/platform/driver"]
    assert wrong("v100-pcie-32gb", "{}") == []  # nothing is known of a driver that is not the operator's


def test_the_hint_has_a_driver_to_write() -> None:
    (finding,) = [one for one in check(written(pool(card="v100-pcie-32gb"), platform="{driver: {}}")) if one.code == "GS718"]
    assert 'driver: {version: "580.126.20"}' in finding.hints[0]


def test_gb300_accepts_its_server_drivers_for_mig() -> None:
    assert wrong("gb300-278gb", '{driver: {version: "580.105.08"}}', "{mode: mig, layout: {1g.35gb: 7}}") == []


def test_the_open_kernel_modules_need_turing() -> None:
    values = '{driver: {version: "580.126.20"}, values: {driver: {kernelModuleType: open}}}'
    assert wrong("v100-pcie-32gb", values) == ["/spec/platform/values/driver/kernelModuleType"]
    assert wrong("t4", values) == []
    old = "{version: v24.3.0, driver: {}, values: {driver: {useOpenKernelModules: true}}}"
    assert wrong("p100-pcie-16gb", old) == ["/spec/platform/values/driver/useOpenKernelModules"]


def test_mps_needs_volta() -> None:
    assert found(written(pool(card="p100-pcie-16gb", sharing="{mode: mps, replicas: 4}")), "GS302")
    assert not found(written(pool(card="v100-pcie-16gb", sharing="{mode: mps, replicas: 4}")), "GS302")


@pytest.mark.parametrize(
    ("version", "values", "codes"),
    [
        ("v24.3.0", "{driver: {useOpenKernelModules: true}}", []),
        ("v26.7.0", "{driver: {useOpenKernelModules: true}}", ["GS709"]),
        ("v24.3.0", "{driver: {kernelModuleType: open}}", ["GS708"]),
        ("v25.3.0", "{driver: {kernelModuleType: open}}", []),
        ("v24.9.0", "{cdi: {enabled: true, default: true}}", []),
        ("v26.7.0", "{cdi: {enabled: true, default: true}}", ["GS709"]),
    ],
)
def test_values_are_checked_against_the_chart_of_the_release(version: str, values: str, codes: list[str]) -> None:
    text = written(pool(), platform=f'{{version: {version}, driver: {{version: "550.54.15"}}, values: {values}}}')
    assert [one.code for one in check(text)] == codes


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("v26.7.2", "DRA driver v0.5.1"),
        ("v99.1.0", "newer than this gpushare knows"),
        ("v22.9.0", "the oldest whose chart was read"),
        ("v25.9.9", "not known here"),
    ],
)
def test_unknown_chart_release_is_reported(version: str, said: str) -> None:
    ((path, _, message),) = found(written(pool(), platform=f"{{version: {version}}}"), "GS705")
    assert (path, said in message) == ("/spec/platform/version", True)
