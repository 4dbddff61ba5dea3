"""The windows of rollouts: zones that exist, and time enough for a change."""

import pytest

from gpushare.reading import source
from gpushare.reading.overlay import merge
from gpushare.rules.rollouts import LATE_SECONDS
from gpushare.vendors.amd import AMD
from gpushare.vendors.nvidia import NVIDIA
from tests.compiler.rules.intents import check, check_source, pool, written

NIGHT = 'days: [Sat], start: "22:00"'


CLUSTER = """apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {{name: x}}
spec:
  rollout: {{{rollout}}}
  pools:
    a: {{card: t4, nodes: {{names: [n1]}}, gpusPerNode: 1, sharing: {{mode: exclusive}}, rollout: {{{own}}}}}
"""


def told(duration: str, zone: str = "Europe/Zurich", rollout: str = "") -> list[tuple[str, str, tuple[str, ...]]]:
    """(code, place below the window, hints) of what is found of one window."""
    windows = f"windows: [{{{NIGHT}, duration: {duration}, timezone: {zone}}}]"
    findings = check(written(pool(rollout=f"{{{rollout}{windows}}}")))
    return [(one.code, str(one.path[-1]), one.hints) for one in findings if one.code in ("GS219", "GS220")]


@pytest.mark.parametrize(
    ("zone", "near"),
    [
        ("Europe/Zuerich", "did you mean Europe/Zurich"),
        ("zurich", "did you mean Europe/Zurich?"),
        ("localtime", "write a name such as Europe/Zurich, or UTC"),
        ("posix/Europe/Zurich", "did you mean Europe/Zurich"),
        ("EUROPE/ZURICH", "did you mean Europe/Zurich?"),
        ("CEST", "did you mean Europe/Berlin or Europe/Paris?"),
        ("PDT", "did you mean America/Los_Angeles?"),
        ("EDT", "did you mean America/New_York?"),
        ("BST", "did you mean Europe/London?"),
        ("IST", "did you mean Asia/Kolkata?"),
        ("ESTX", "write a name such as Europe/Zurich, or UTC"),
    ],
)
def test_unknown_zones_are_reported_with_the_nearest(zone: str, near: str) -> None:
    ((code, place, (hint,)),) = told("6h", zone)
    assert (code, place, hint.startswith(near)) == ("GS219", "timezone", True)


@pytest.mark.parametrize("zone", ["localtime", "posixrules", "posix/Europe/Zurich", "right/Europe/Zurich", "Europe"])
def test_other_files_of_the_database_are_no_zones(zone: str) -> None:
    assert [code for code, _, _ in told("6h", zone)] == ["GS219"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", "America/Indiana/Knox", "Etc/GMT+1"])
def test_known_zones_are_not(zone: str) -> None:
    assert told("6h", zone) == []


@pytest.mark.parametrize(
    ("rollout", "drain_minutes", "hint"),
    [
        ("", 30, "write 1h10m or more, or a shorter drainTimeout"),
        ("drainTimeout: 0s, ", 0, "write 40m or more"),
        ("drainTimeout: 2h20m, ", 140, "write 3h or more, or a shorter drainTimeout"),
        ("drainTimeout: 2h, onBusy: fail, ", 0, "write 40m or more"),
    ],
)
def test_a_window_must_fit_drain_and_change(rollout: str, drain_minutes: int, hint: str) -> None:
    least = drain_minutes + (NVIDIA.window_seconds + LATE_SECONDS) // 60
    assert told(f"{least}m", rollout=rollout) == []
    ((code, place, hints),) = told(f"{least - 1}m59s", rollout=rollout)
    assert (code, place) == ("GS220", "duration")
    assert hints[1] == hint


def test_a_change_of_amds_gpus_takes_longer() -> None:
    assert AMD.window_seconds > NVIDIA.window_seconds
    text = CLUSTER.format(rollout="", own=f"windows: [{{{NIGHT}, duration: 1h15m}}]").replace("card: t4", "card: mi300x")
    found = check(text.replace("  pools:", "  platform: {stack: amd-gpu-operator}\n  pools:"))
    [hints] = [one.hints for one in found if one.code == "GS220"]
    assert hints == (
        "the drain's 30m, the change's 52m and 10m until a node begins must fit",
        "write 1h32m or more, or a shorter drainTimeout",
    )


def test_a_drain_longer_than_any_window_gets_no_hint_to_a_longer_window() -> None:
    assert told("168h", rollout="drainTimeout: 167h20m, ") == []
    ((code, place, hints),) = told("168h", rollout="drainTimeout: 200h, ")
    assert (code, place) == ("GS220", "duration")
    assert hints == (
        "the drain's 200h, the change's 30m and 10m until a node begins must fit",
        "write a shorter drainTimeout: a window is open for 168h at most, so it fits a drain of 167h20m at most",
    )


def test_a_window_lasts_a_week_at_most() -> None:
    assert told("168h") == []
    assert [(code, place) for code, place, _ in told("168h1s")] == [("GS220", "duration")]
    assert [(code, place) for code, place, _ in told("0s")] == [("GS220", "duration")]


def test_a_clusters_window_is_reported_once_with_the_pools_that_it_does_not_fit() -> None:
    text = """apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: x}
spec:
  rollout: {windows: [{start: "22:00", duration: 75m}]}
  pools:
    a: {card: t4, nodes: {names: [n1]}, gpusPerNode: 1, sharing: {mode: exclusive}}
    b: {card: t4, nodes: {names: [n2]}, gpusPerNode: 1, sharing: {mode: exclusive}, rollout: {drainTimeout: 1h}}
    c: {card: t4, nodes: {names: [n3]}, gpusPerNode: 1, sharing: {mode: exclusive}, rollout: {windows: []}}
"""
    (one,) = [finding for finding in check(text) if finding.code == "GS220"]
    assert one.message == "no change of pool b ever begins in a window of 1h15m"
    assert one.path == ("spec", "rollout", "windows", 0, "duration")


@pytest.mark.parametrize(
    ("rollout", "own", "found"),
    [
        ('windows: [{start: "22:00", duration: 6h, timezone: Mars/Base}]', "windows: []", {"GS219": "windows 0 timezone"}),
        ('windows: [{start: "22:00", duration: 45m}]', "windows: []", {"GS220": "windows 0 duration"}),
        ('windows: [{start: "22:00", duration: 45m}], onBusy: fail', "windows: []", {}),
        ("drainTimeout: 1h, maxUnavailable: 2", "drainTimeout: 2h", {"GS508": "drainTimeout"}),
        ("drainTimeout: 1h, maxUnavailable: 2", "onBusy: wait", {}),
    ],
)
def test_what_every_pool_replaces_is_checked_where_it_is_written_and_has_no_effect(
    rollout: str, own: str, found: dict[str, str]
) -> None:
    findings = [one for one in check(CLUSTER.format(rollout=rollout, own=own)) if one.code in ("GS219", "GS220", "GS508")]
    wanted = found | ({"GS508": "windows"} if "windows" in own else {})
    assert {one.code: " ".join(map(str, one.path[2:])) for one in findings} == wanted
    assert all(one.path[:2] == ("spec", "rollout") for one in findings)


BASE = CLUSTER.format(rollout='windows: [{start: "22:00", duration: 2h}], onBusy: fail', own="drainTimeout: 15m")


@pytest.mark.parametrize(
    ("overlay", "place"),
    [
        ("spec: {pools: {a: {rollout: {drainTimeout: 3h, onBusy: wait}}}}", "3h"),
        ("spec: {rollout: {onBusy: null}, pools: {a: {rollout: {drainTimeout: 3h}}}}", "3h"),
        ('spec: {rollout: {windows: [{start: "22:00", duration: 46m}], onBusy: wait}}', "46m"),
        (
            "spec: {rollout: {onBusy: null, drainTimeout: 4h}, pools: {a: {rollout: {drainTimeout: null}}}}",
            "drainTimeout: null",
        ),
    ],
)
def test_a_window_that_is_too_short_is_reported_in_the_file_that_made_it_so(overlay: str, place: str) -> None:
    merged = merge([source.read(text.encode(), f"{name}.yaml") for name, text in (("base", BASE), ("overlay", overlay))])
    (one,) = [one for one in check_source(merged) if one.code == "GS220"]
    assert one.file == "overlay.yaml"
    assert one.span is not None
    assert place in overlay.splitlines()[0][one.span.column - 1 :]


@pytest.mark.parametrize(
    ("window", "code", "text"),
    [
        ('{days: [Saturday], start: "22:00", duration: 6h}', "GS104", "Saturday"),
        ('{days: [], start: "22:00", duration: 6h}', "GS107", "at least one entry"),
        ('{start: "24:00", duration: 6h}', "GS105", "from 00:00 to 23:59"),
        ('{start: "9:30", duration: 6h}', "GS105", "from 00:00 to 23:59"),
        ("{start: 22:00, duration: 6h}", "GS005", '"22:00"'),
        ('{start: "22:00", duration: 6}', "GS103", "duration"),
        ('{start: "22:00", duration: 6h, timezone: ../etc/passwd}', "GS105", "time zone"),
        ('{start: "22:00"}', "GS101", "duration"),
        ('{start: "22:00", duration: 7d}', "GS105", "write 168h"),
        ('{start: "22:00", duration: 8d}', "GS105", "write 168h"),
        ('{start: "22:00", duration: 2d}', "GS105", "write 48h"),
        ("Sat", "GS103", 'write a mapping: {days: [Sat], start: "22:00", duration: 6h}'),
        ("nightly", "GS103", 'write a mapping: {start: "22:00", duration: 6h}'),
    ],
)
def test_malformed_windows_are_reported_at_the_value(window: str, code: str, text: str) -> None:
    (one,) = check(written(pool(rollout=f"{{windows: [{window}]}}")))
    assert (one.code, text in " ".join((one.message, *one.hints))) == (code, True)
