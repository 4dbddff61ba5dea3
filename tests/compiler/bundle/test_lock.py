"""The lock file: what it remembers, how generations move on, and what happens to one that is broken."""

from typing import Any

import pytest

from gpushare.bundle import lock
from gpushare.bundle.lock import EMPTY, GENERATIONS, ConfigHistory, GoalPin, Lock
from gpushare.core import resources
from gpushare.core.diagnostics import Finding

SHARED = {"version": "v1", "sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 8}]}}}
LEFT = {
    "pool": "hpc",
    "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "nvidia.com/gpu"},
    "lookups": {"class.gpushare-hpc": "hpc"},
    "quotas": {"atlas": 2},
}
FULL = Lock(
    intent="sha256:" + "1" * 64,
    files={"README.md": "sha256:" + "a" * 64, "chart/values.yaml": "sha256:" + "b" * 64},
    goals={"training": GoalPin(question="1a2b3c4d", layout=(("3g.20gb", 1), ("1g.5gb", 4)))},
    profiles=ConfigHistory(
        now={"mps-12345678": SHARED}, former=({"mig-1e345678": {"version": "v1"}}, {"exclusive-00000000": {"version": "v1"}})
    ),
    mig_configs=ConfigHistory(
        now={"mig-aaaaaaaa": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]},
        former=({"mig-bbbbbbbb": [{"devices": "all", "mig-enabled": False}]},),
    ),
    vendors=("amd",),
    stacks={"amd": {"namespace": "rocm", "stack": "amd-gpu-operator"}},
    dra={
        "driverNamespace": "dra",
        "byMemory": True,
        "tolerations": [{"key": "school", "operator": "Exists"}],
        "classes": {"gpushare-hpc": LEFT},
    },
)


def after(before: Lock, *keys: str) -> Lock:
    return lock.advance(before, intent="", goals={}, configs={"profiles": {key: {"key": key} for key in keys}})


@pytest.mark.parametrize("memory", [EMPTY, FULL], ids=["empty", "full"])
def test_lock_round_trips(memory: Lock) -> None:
    assert lock.read(lock.text(memory).encode()) == memory


def test_the_order_of_a_layout_survives() -> None:
    read = lock.read(lock.text(FULL).encode())
    assert isinstance(read, Lock)
    assert read.goals["training"].layout == (("3g.20gb", 1), ("1g.5gb", 4))


def test_the_text_does_not_depend_on_the_order_of_discovery() -> None:
    turned = Lock(files=dict(reversed([*FULL.files.items()])), profiles=ConfigHistory(now={"b": {}, "a": {}}))
    assert lock.text(turned) == lock.text(Lock(files=FULL.files, profiles=ConfigHistory(now={"a": {}, "b": {}})))


def test_changed_profile_set_becomes_a_previous_generation() -> None:
    first = after(EMPTY, "a", "b")
    assert first.profiles.former == ()
    assert after(first, "a", "b").profiles.former == ()
    second = after(first, "b", "c")
    assert second.profiles.former == ({"a": {"key": "a"}},)
    assert after(second, "b", "c") == second


def test_reused_profile_is_no_longer_a_previous_one() -> None:
    memory = after(after(after(EMPTY, "a"), "b"), "a")
    assert memory.profiles.former == ({"b": {"key": "b"}},)
    assert sorted(memory.profiles.every()) == ["a", "b"]


def test_the_newest_generations_are_kept_and_the_oldest_forgotten() -> None:
    memory = EMPTY
    for number in range(GENERATIONS + 5):
        memory = after(memory, f"p{number}")
    assert [next(iter(older)) for older in memory.profiles.former] == [f"p{number}" for number in range(GENERATIONS + 3, 3, -1)]


def test_configs_of_mig_parted_have_generations_of_their_own() -> None:
    first = lock.advance(EMPTY, intent="", goals={}, configs={"profiles": {"a": {}}, "mig_configs": {"x": []}})
    second = lock.advance(first, intent="", goals={}, configs={"profiles": {"a": {}}, "mig_configs": {"y": []}})
    assert second.profiles.former == ()
    assert second.mig_configs.former == ({"x": []},)
    assert second.mig_configs.every() == {"x": [], "y": []}


def broken(**change: Any) -> bytes:
    text = lock.text(FULL)
    for old, new in change.values():
        assert old in text
        text = text.replace(old, new)
    return text.encode()


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b"a: [", 1),
        (b"\xff\xfe", 1),
        (b"- a\n", 1),
        (b"<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> other\n", 2),
        (broken(kind=("kind: Lock", "kind: Look")), 4),
        (broken(digest=("sha256:" + "a" * 64, "md5:0")), None),
        (broken(extra=("goals:", "gaols: {}\ngoals:")), None),
        (lock.text(FULL).encode()[:-200], None),
    ],
)
def test_invalid_lock_is_a_finding_with_position_and_hint(data: bytes, line: int | None) -> None:
    finding = lock.read(data, "bundle/gpushare.lock.yaml")
    assert isinstance(finding, Finding)
    assert finding.code == "GS790"
    assert finding.file == "bundle/gpushare.lock.yaml"
    assert finding.span is not None
    assert line is None or finding.span.line == line
    assert "restore it from version control" in finding.hints[0]


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../../etc/passwd", "chart/../../x", "..", ".", "chart//x", "chart/./x", "a\\\\..\\\\b", "a\\u0000b", "a/"],
)
def test_a_lock_that_lists_a_path_out_of_the_bundle_is_broken_at_that_path(path: str) -> None:
    data = broken(path=("README.md:", f'"{path}":'))
    finding = lock.read(data)
    assert isinstance(finding, Finding)
    assert finding.code == "GS790"
    line = data.decode().splitlines().index(f'  "{path}": "sha256:{"a" * 64}"') + 1
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (line, 3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  mps-12345678:", "  ../../values:"),
        ("  mps-12345678:", "  mps-1234567:"),
        ("    version: v1\n    sharing:", "    version: v2\n    sharing:"),
        ("replicas: 8", "replicas: 1"),
        ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb+me"),
        ("      mps:\n", "      timeSlicing: {}\n      mps:\n"),
        ("  mig-aaaaaaaa:", "  Everything:"),
        ('"1g.5gb": 7', '"1g.5gb": 0'),
        ('"1g.5gb": 7', '"1c.1g.5gb": 7'),
        ('"1g.5gb": 7', '"1g.5gb.me": 7'),
        ("devices: all", "devices: some"),
        ("mig-enabled: false", "mig-enabled: true"),
        ("mig-enabled: true", "mig-enabled: false"),
        ("mig-enabled: false", "mig-enabled: false\n        device-filter: A100"),
    ],
)
def test_a_lock_with_a_config_that_upstream_would_refuse_is_broken(old: str, new: str) -> None:
    finding = lock.read(broken(change=(old, new)))
    assert isinstance(finding, Finding)
    assert (finding.code, finding.span is not None) == ("GS790", True)


def test_the_text_that_explains_the_finding_has_an_example_of_each() -> None:
    bad, good = (part.partition("```")[0] for part in (resources.findings() / "GS790.md").read_text().split("```yaml\n")[1:])
    assert isinstance(lock.read(bad.encode()), Finding)
    assert isinstance(lock.read(good.encode()), Lock)
