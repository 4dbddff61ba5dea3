"""The windows of rollouts: zones that exist, and time enough for a change."""

import pytest

from gpushare.intent.windows import CHANGE_SECONDS, LATE_SECONDS
from tests.compiler.rules.intents import check, pool, written

NIGHT = 'days: [Sat], start: "22:00"'


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
    ],
)
def test_unknown_zones_are_reported_with_the_nearest(zone: str, near: str) -> None:
    ((code, place, (hint,)),) = told("6h", zone)
    assert (code, place, hint.startswith(near)) == ("GS219", "timezone", True)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", "America/Indiana/Knox", "Etc/GMT+1"])
def test_known_zones_are_not(zone: str) -> None:
    assert told("6h", zone) == []


@pytest.mark.parametrize(
    ("rollout", "drain_minutes"),
    [("", 30), ("drainTimeout: 0s, ", 0), ("drainTimeout: 2h, ", 120), ("drainTimeout: 2h, onBusy: fail, ", 0)],
)
def test_a_window_must_fit_drain_and_change(rollout: str, drain_minutes: int) -> None:
    least = drain_minutes + (CHANGE_SECONDS + LATE_SECONDS) // 60
    assert told(f"{least}m", rollout=rollout) == []
    ((code, place, hints),) = told(f"{least - 1}m59s", rollout=rollout)
    assert (code, place) == ("GS220", "duration")
    assert hints[1].startswith(f"write {least}m or more")


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
    assert one.message == "no change of pool b ever begins in a window of 75m"
    assert one.path == ("spec", "rollout", "windows", 0, "duration")


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
    ],
)
def test_malformed_windows_are_reported_at_the_value(window: str, code: str, text: str) -> None:
    (one,) = check(written(pool(rollout=f"{{windows: [{window}]}}")))
    assert (one.code, text in " ".join((one.message, *one.hints))) == (code, True)
