"""`gpushare krm` gives back the objects of others as they are written."""

import re
from pathlib import Path

import pytest

from gpushare.cli import resource_list
from tests.compiler.cli.conftest import GOOD
from tests.compiler.cli.test_krm import OTHER, committed, items, krm, received

__all__ = ["committed"]

SCALARS = (
    "2024-05-01T10:00:00.123456789Z", "2024-05-01 10:00:00 +02:00", "2024-02-30", "1E400", "-1e-400", "10:00:00",
    "190:20:30.15", "~", "", "null", "0o14", "0644", "0x1F", "1_000", "+1", ".inf", "-.INF", ".nan", "=", "on", "NO", "y",
    "12e03", "99999999999999999999999999", "1.10", "!!binary aGk=",
    "!mine x", "'it''s'", '"\\u263a \\x41"', "a # b", "a\n  b\n\n  c",
    "'a\n  b'", '"a\\\n    b"', "{b: 2024-02-30, c: [0644, on]}", "[\n  1E400,\n    on\n  ]", "&x 0644\nf: *x",
    "&x {b: 0644}\nf: {<<: *x, <<: 2024-02-30}", "\n# why\n- 2024-02-30 # said\n-  0644", "\n  ? - 0644\n  : on",
)
"""Values that readers of YAML differ on, or that Python has no value for."""

BLOCKS = (
    "|\n  a\n    b\n\n  c", "|+\n  a\n\n", "|-\n  a", "|2\n    a", ">\n  a\n  b\n\n   c\n  d", "|\n  a\n    \n  b", "|\n  \ta",
)


def config_map(value: str) -> str:
    """A ConfigMap of others with a value."""
    return f"apiVersion: v1\nkind: ConfigMap # theirs\nmetadata: {{name: other}}\nvalue: {value}\nlast: true\n"


@pytest.mark.parametrize("value", [*SCALARS, *BLOCKS])
def test_objects_of_others_keep_their_text(value: str) -> None:
    """Between others, and as the last one before the results."""
    text = config_map(value)
    read = resource_list.read(received("kind: Check\n", text, OTHER, text))
    expected = received("", text, OTHER, text).decode().replace("\n-\n  ", "\n- ")
    assert resource_list.write(read, (), ()) == expected
    assert [item.text for item in read.items] == [text, OTHER, text]


def again(text: str) -> str:
    """The objects of a list of YAML, given back."""
    head = "kind: ResourceList\napiVersion: config.kubernetes.io/v1\nitems: "
    return resource_list.write(resource_list.read(f"{head}{text}".encode()), (), ())


@pytest.mark.parametrize(("written", "expected"), [
    ('{"a": "v1",\n "d": 2024-02-30}', '{"a": "v1",\n   "d": 2024-02-30}'),
    ("&a\n  kind: B\n  x: *a", "&a\n  kind: B\n  x: *a"),
    ("    kind: C\n      # nothing\n      x:\n        |\n         0644\n\n      y: 1E400",
     "kind: C\n  # nothing\n  x:\n    |\n     0644\n\n  y: 1E400"),
])
def test_objects_in_other_styles_keep_their_text(written: str, expected: str) -> None:
    assert again(f"\n- {written}\n- b: c\n").partition("items:\n")[2] == f"- {expected}\n- b: c\n"


def test_a_list_in_json_stays_json() -> None:
    given = again('[{"kind": "A", "t": 10:00:00}, {"b": "on"}]')
    assert given.endswith('items:\n- {"kind": "A", "t": 10:00:00}\n- {"b": "on"}\n')


def test_an_alias_of_another_object_is_refused(intents: Path) -> None:
    """It would lose its anchor with that object."""
    done = krm(received(GOOD, "kind: A\na: &x 1\n", "kind: B\na: *x\n"), intents)
    assert (done.returncode, done.stdout) == (2, "")
    assert "an alias in the object at line 8 has its anchor outside of that object" in done.stderr


NAMESPACES = {
    "a block": "metadata:\n  name: gpu-system\n  # ours\n  labels:\n    # who\n    team: mine\n",
    "a flow": "metadata: {labels: {team: mine}, name: gpu-system}\n",
    "an anchor": "metadata:\n  name: gpu-system\n  labels: &a {team: mine}\n  annotations: *a\n",
    "some of ours": "metadata:\n  name: gpu-system\n  labels: {team: mine, pod-security.kubernetes.io/warn: privileged}\n",
}
WITHOUT = {
    "none": "metadata:\n  name: gpu-system\n", "none in a flow": "metadata: {name: gpu-system}\n",
    "null": "metadata:\n  labels:\n  name: gpu-system\n", "a tilde": "metadata: {labels: ~, name: gpu-system}\n",
    "empty": "metadata:\n  labels: {}\n  name: gpu-system\n",
}
LEVELS = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("audit", "enforce", "warn")}


@pytest.mark.parametrize(("metadata", "before"), [
    *((text, {"team": "mine"}) for text in NAMESPACES.values()), *((text, {}) for text in WITHOUT.values()),
], ids=[*NAMESPACES, *WITHOUT])
def test_the_namespace_of_the_user_gets_our_labels_and_keeps_its_own(
    metadata: str, before: dict[str, str], committed: Path
) -> None:
    theirs = f"apiVersion: v1\nkind: Namespace\n{metadata}spec: {{finalizers: [kubernetes]}}\n"
    done = krm(received(GOOD, OTHER, theirs), committed)
    assert done.returncode == 0, done.stderr
    made = items(done)
    assert [one["metadata"]["labels"] for one in made if one["kind"] == "Namespace"] == [LEVELS | before]
    assert made[1]["spec"] == {"finalizers": ["kubernetes"]}
    assert len(made) == len(items(krm(received(GOOD), committed))) + 1
    for comment in re.findall("# .*", metadata):
        assert comment in done.stdout
