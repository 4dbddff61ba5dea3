"""The verdict: what people meet, worst first, and "nothing for running pods" only where it is so."""

import copy
from datetime import datetime
from typing import Any

import pytest
import yaml

from gpushare.compare.changes import Comparison
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileKind, SettingChange
from gpushare.reading import schema
from gpushare.report import effect_words, markdown, setting_words
from gpushare.report import text as text_of
from gpushare.report.comparison import DOCUMENT, format_outage
from gpushare.report.effect_words import UNCHANGED, headline, verdict
from gpushare.report.terminal import Style
from tests.compiler.compare.comparisons import comparison, compiled, report_of

BASE = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: physics}
spec:
  platform: {image: {repository: r.example.org/gpushare/node-runtime}, driver: {version: 595.91.07}}
  gitops: {argocd: {repoURL: https://g.example.org/r.git, path: c/b}}
  pools:
    nb:
      card: t4
      nodes: {matchLabels: {x/p: nb}, expected: 3}
      gpusPerNode: 1
      sharing: {mode: time-slicing, replicas: 4}
      memory: {cap: 3584Mi}
"""


def change(path: str = "", value: Any = None) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(yaml.safe_load(BASE))
    *above, last = path.split("/")
    place = document
    for key in above:
        place = place.setdefault(key, {})
    if path and value is None:
        place.pop(last)
    elif path:
        place[last] = value
    return document


def told(old: dict[str, Any], new: dict[str, Any], now: float | None = None) -> Comparison:
    found = comparison(compiled(old), compiled(new), now)
    assert schema.accepts(schema.load("plan.v1"), DOCUMENT.write(found))
    return found


MEMORY = "spec/pools/nb/memory"


def test_lowered_cap_applies_only_to_new_pods() -> None:
    said = verdict(told(change(), change(MEMORY, {"cap": "1862Mi"})))
    assert said == [
        "New pods get 1862Mi instead of 3584Mi: programs that need more are killed after their next start (pool nb).",
        UNCHANGED,
    ]


@pytest.mark.parametrize("cap", ["3700Mi", "none"])
def test_a_higher_cap_holds_for_running_pods_at_once(cap: str) -> None:
    found = told(change(), change(MEMORY, {"cap": cap}))
    assert [one.kind for one in found.effects if one.subject.endswith("capMiB")] == [EffectKind.RAISED]
    assert UNCHANGED not in verdict(found)
    assert "Running containers may use a raised cap at once." in verdict(found)


NO_CAP = {"cap": "none"}


def test_first_cap_does_not_apply_to_running_containers() -> None:
    found = told(change(MEMORY, NO_CAP), change())
    assert [one.kind for one in found.effects if one.subject.endswith("capMiB")] == [EffectKind.FIRST_CAP]
    assert verdict(found) == [
        "New pods get 3584Mi instead of no cap: programs that need more are killed after their next start (pool nb).",
        UNCHANGED,
    ]
    (line,) = [one for one in map(words, found.effects) if "3584" in one]
    assert "only warned" in line
    assert "the cap under which they started" not in line


def test_a_first_cap_with_a_notice_holds_for_running_containers_after_it() -> None:
    new = change("spec/pools/nb/enforcement", {"notice": "72h"})
    found = told(change(MEMORY, NO_CAP), new)
    assert [one.kind for one in found.effects if one.subject.endswith("capMiB")] == [EffectKind.NOTICED]
    said = verdict(found)
    assert "Running containers without a cap are warned, and held to the new one after the notice." in said
    assert UNCHANGED not in said


def words(effect: Effect) -> str:
    return effect_words.format_effect(effect)


def test_old_and_new_caps_are_reported_together() -> None:
    new = change("spec/pools/nb/sharing/replicas", 8)
    new["spec"]["pools"]["nb"]["memory"] = {"cap": "1862Mi"}
    (mixed,) = [one for one in verdict(told(change(), new)) if "On the way" in one]
    assert "4 containers with 3584Mi and 4 with 1862Mi" in mixed
    assert "21.27 GiB on 15 GiB" in mixed


SATURDAY = '{days: [Sat], start: "22:00", duration: 2h, timezone: Europe/Zurich}'
OPENING = "Sat 2026-11-28 22:00 Europe/Zurich (2026-11-28 21:00 UTC)"


@pytest.mark.parametrize(
    ("rollout", "now", "text", "opens_at"),
    [
        ("{}", "2026-11-26T12:00Z", None, None),
        (f"{{windows: [{SATURDAY}]}}", "2026-11-26T12:00Z", f"opens, {OPENING}", "2026-11-28T21:00:00Z"),
        (f"{{windows: [{SATURDAY}]}}", "2026-11-28T21:59Z", None, None),
        (f"{{windows: [{SATURDAY}]}}", "2026-11-28T22:01Z", "opens, Sat 2026-12-05", "2026-12-05T21:00:00Z"),
        (f"{{windows: [{SATURDAY}], onBusy: fail}}", "2026-11-28T22:29Z", None, None),
        (f"{{windows: [{SATURDAY}], paused: true}}", "2026-11-28T21:59Z", "rollout.paused is no longer true", None),
    ],
)  # fmt: skip
def test_outages_say_when_they_can_begin(rollout: str, now: str, text: str | None, opens_at: str | None) -> None:
    old, new = change(), change("spec/pools/nb/sharing/replicas", 2)
    for one in (old, new):
        one["spec"]["pools"]["nb"]["rollout"] = yaml.safe_load(rollout)
    found = told(old, new, datetime.fromisoformat(now).timestamp())
    said = format_outage(found.outages[0])
    assert text in said if text else "begins" not in said
    (document,) = DOCUMENT.write(found)["outages"]
    assert (document["paused"], document["opensAt"]) == ("paused" in rollout, opens_at)


SEE = "see gpushare status or plan --live."
SUNDAY = SATURDAY.replace("Sat", "Sun")


@pytest.mark.parametrize(
    ("old", "new", "when"),
    [
        ("{paused: true}", "{}", "at once"),
        (f"{{windows: [{SATURDAY}]}}", "{}", "at once"),
        ("{paused: true}", f"{{windows: [{SATURDAY}]}}", f"when the next window opens, {OPENING}"),
        (f"{{windows: [{SUNDAY}]}}", f"{{windows: [{SATURDAY}]}}", f"when the next window opens, {OPENING}"),
        (f"{{paused: true, windows: [{SATURDAY}]}}", f"{{windows: [{SATURDAY}]}}", f"when the next window opens, {OPENING}"),
        ("{paused: true}", f"{{paused: true, windows: [{SATURDAY}]}}", None),
        (f"{{windows: [{SATURDAY}]}}", f"{{paused: true, windows: [{SATURDAY}]}}", None),
        ("{}", f"{{windows: [{SATURDAY}]}}", None),
        (f"{{windows: [{SATURDAY}]}}", f"{{windows: [{SATURDAY}], maxUnavailable: 2}}", None),
    ],
)
@pytest.mark.parametrize("is_renamed", [False, True])
def test_changes_that_nodes_hold_back_may_begin_when_the_rollout_allows_it(
    old: str, new: str, when: str | None, is_renamed: bool
) -> None:
    before, after = change("spec/pools/nb/rollout", yaml.safe_load(old)), change("spec/pools/nb/rollout", yaml.safe_load(new))
    if is_renamed:
        after["spec"]["pools"] = {"big": after["spec"]["pools"].pop("nb")}
    found = told(before, after, datetime.fromisoformat("2026-11-26T12:00Z").timestamp())
    pool = "big" if is_renamed else "nb"
    said = [one for one in verdict(found) if "hold back" in one]
    assert bool(said) == (UNCHANGED not in verdict(found)) == (when is not None)
    shown = report_of(compiled(before), compiled(after), datetime.fromisoformat("2026-11-26T12:00Z").timestamp())
    text = text_of.render(shown, Style(columns=500)) + markdown.render(shown)
    assert ("no pod disturbed" in text or "no node is touched" in text or "No GPU and no" in text) == (when is None)
    assert (DOCUMENT.write(found)["podsDisturbed"] is None) == (when is not None)
    assert ("hold back may begin" in headline(found)) == (when is not None)
    if when is not None:
        assert f"changes that nodes still hold back may begin {when}; see gpushare status or plan --live" in text
        assert said == [f"Changes that nodes still hold back may begin {when} (pool {pool}): {SEE}"]


def test_what_the_change_itself_disturbs_is_still_counted_where_held_changes_may_begin() -> None:
    old, new = change("spec/pools/nb/rollout", {"paused": True}), change("spec/pools/nb/sharing/replicas", 2)
    other = copy.deepcopy(old["spec"]["pools"]["nb"]) | {"nodes": {"names": ["n8"]}}
    old["spec"]["pools"]["idle"] = other
    new["spec"]["pools"]["idle"] = copy.deepcopy(other) | {"rollout": {}}
    found = told(old, new)
    said = verdict(found)
    assert "At most 12 running pods lose their shares of GPUs: their nodes wait for them." in said
    assert "Changes that nodes still hold back may begin at once (pool idle): " + SEE in said
    assert "3 nodes are changed." in said
    assert headline(found).startswith("At most 12 running pods are disturbed; changes that nodes still hold back may begin;")


def test_a_named_node_that_changes_pools_meets_the_windows_of_its_new_pool() -> None:
    old, new = change("spec/pools/nb/nodes", {"names": ["n1", "n2"]}), change("spec/pools/nb/nodes", {"names": ["n1"]})
    for one, names in ((old, ["n8"]), (new, ["n2", "n8"])):
        one["spec"]["pools"]["nb"]["rollout"] = {"paused": True}
        one["spec"]["pools"]["free"] = copy.deepcopy(one["spec"]["pools"]["nb"]) | {"nodes": {"names": names}, "rollout": {}}
    assert [(one.pool, one.after) for one in told(old, new).effects if one.kind is EffectKind.BEGINS] == [("free", None)]


DAYS = "Mon, Tue, Wed, Thu, Fri, Sat, Sun"


@pytest.mark.parametrize(
    ("days", "duration", "shown"),
    [
        ("Mon, Tue, Wed, Thu, Fri", "2h", "Mon-Fri 06:00 for 2h Europe/Zurich"),
        ("Tue, Mon, Wed", "90m", "Mon-Wed 06:00 for {1h30m|90m} Europe/Zurich"),
        ("Sat, Sun", "168h", "Sat,Sun 06:00 for 168h Europe/Zurich"),
        ("Mon, Tue, Thu", "2h", "Mon,Tue,Thu 06:00 for 2h Europe/Zurich"),
        (DAYS, "2h", "daily 06:00 for 2h Europe/Zurich"),
    ],
)
def test_windows_are_shown_in_words_and_whole(days: str, duration: str, shown: str) -> None:
    """In the policy, where durations are seconds, and in the intent, where they are as the user wrote them."""
    window = f'{{days: [{days}], start: "06:00", duration: {duration}, timezone: Europe/Zurich}}'
    old = change("spec/pools/nb/rollout", yaml.safe_load(f"{{windows: [{SATURDAY}]}}"))
    new = change("spec/pools/nb/rollout", yaml.safe_load(f"{{windows: [{SATURDAY}, {window}]}}"))
    (effect,) = [one for one in told(old, new).effects if one.subject == "rollout.windows"]
    first = "Sat 22:00 for 2h Europe/Zurich"
    policy, intent = (shown.replace("{1h30m|90m}", text) for text in ("1h30m", "90m"))
    told_order = words(effect).partition(" → ")[2].removesuffix(": the pace of later changes").split("; ")
    assert sorted(told_order) == sorted((first, policy))
    both = [side["spec"]["pools"]["nb"]["rollout"]["windows"] for side in (old, new)]
    setting = SettingChange(path=("windows",), kind=FileKind.CHANGED, before=both[0], after=both[1])
    assert setting_words.format_setting(setting) == f"windows: {first} → {first}; {intent}"
    assert setting_words.format_value(both[1][1:]) == intent
    whole = setting_words.format_value({"onBusy": "evict", "windows": both[1]})
    assert whole == f'{{"onBusy": "evict", "windows": "{first}; {intent}"}}'


def test_new_nodes_wait_for_no_window() -> None:
    new = change()
    new["spec"]["pools"]["nb"]["rollout"] = {"paused": True}
    other = copy.deepcopy(new["spec"]["pools"]["nb"]) | {"nodes": {"names": ["n9"]}}
    old = copy.deepcopy(new)
    new["spec"]["pools"]["more"] = other
    assert [(one.pool, one.start) for one in told(old, new).outages] == [("more", None)]


def test_outage_texts_of_wait_and_evict_differ() -> None:
    said = []
    for way in ("wait", "evict"):
        old, new = change(), change("spec/pools/nb/sharing/replicas", 2)
        for one in (old, new):
            one["spec"]["pools"]["nb"]["rollout"] = {"onBusy": way}
        (outage,) = told(old, new).outages
        said.append(format_outage(outage).rpartition("; ")[2])
    assert "wait" in said[0]
    assert "evict" not in said[0]
    assert "evict" in said[1]
    assert "wait" not in said[1]


def test_a_renamed_cluster_is_a_release_of_every_node() -> None:
    found = told(change(), change("metadata/name", "chem"))
    assert verdict(found)[0].startswith("Every node is released")
    assert (found.touched, found.disturbed) == (None, None)
    assert "argocd/root.yaml" in {one.subject for one in found.effects if one.kind is EffectKind.APPLIED}


def test_gitops_tool_switch_reports_the_handover() -> None:
    flux = {"flux": {"url": "https://g.example.org/r.git", "path": "c/b"}}
    for old, new in ((change(), change("spec/gitops", flux)), (change("spec/gitops", flux), change("spec/gitops"))):
        assert EffectKind.HANDED_OVER in {one.kind for one in told(old, new).effects}


def test_changed_dcgm_image_is_not_a_driver_change() -> None:
    kinds = {one.kind for one in told(change(), change("spec/platform/values", {"dcgm": {"enabled": True}})).effects}
    assert EffectKind.UPSTREAM in kinds
    assert EffectKind.DRIVER not in kinds


def test_removed_driver_is_reported_without_a_replacement() -> None:
    found = told(change(), change("spec/platform/driver"))
    assert EffectKind.DRIVERLESS in {one.kind for one in found.effects}
    assert "nothing replaces it" in verdict(found)[0]
