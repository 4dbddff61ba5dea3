"""Any bytes give an intent that passes its check, or errors; never an exception."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.cluster.importing import Imported, InputFile
from gpushare.cluster.importing.documents import MAX_DOCUMENTS
from gpushare.cluster.importing.parts import MAX_OF_A_CODE
from tests.compiler.cluster.importing.imports import (
    A100,
    check,
    codes,
    compiled,
    config_map,
    errors,
    imported,
    node,
    selected,
    sharing,
)
from tests.support import scale

SEEDS = "---\n".join(
    [
        config_map(sharing()),
        selected(),
        "devicePlugin: {config: {name: plugin-configs, default: shared}}\n",
        node(A100 + ", nvidia.com/mig.config: halves", "gpu-02"),
        "version: v1\nmig-configs:\n  halves:\n  - {devices: [0, 1], mig-enabled: true, mig-devices: {3g.20gb: 2}}\n",
        "kind: ResourceQuota\nmetadata: {name: q, namespace: a}\nspec: {hard: {requests.nvidia.com/gpu.shared: 4}}\n",
    ]
).encode()
PIECES = [
    b"null",
    b"[]",
    b"{}",
    b"-1",
    b"99999999",
    b"'",
    b'"',
    b"\n",
    b"  ",
    b"---\n",
    b"&a ",
    b"*a",
    b"\x00",
    b"\xff",
    b"kind: Pools\n",
    b"| ",
]


def is_sound(found: Imported) -> bool:
    """Whether there are errors, or an intent that compiles."""
    return bool(errors(found)) or compiled(found).plan is not None


@given(st.binary(max_size=300))
@settings(max_examples=scale.examples(150))
def test_importing_any_bytes_raises_nothing(data: bytes) -> None:
    assert is_sound(check([InputFile(name="-", data=data)]))


@given(st.lists(st.tuples(st.integers(0, len(SEEDS)), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=4))
@settings(max_examples=scale.examples(300))
def test_importing_inputs_with_replaced_parts_raises_nothing(changes: list[tuple[int, int, bytes]]) -> None:
    data = SEEDS
    for at, length, piece in changes:
        data = data[:at] + piece + data[at + length :]
    assert is_sound(check([InputFile(name="-", data=data)]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "kind",
                    "metadata",
                    "labels",
                    "name",
                    "data",
                    "sharing",
                    "mps",
                    "resources",
                    "items",
                    "spec",
                    "pools",
                    "mig-configs",
                    "devicePlugin",
                    "config",
                    "nvidia.com/gpu.product",
                    "status",
                    "taints",
                    "devices",
                    "hard",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.sampled_from(["Node", "ConfigMap", "ResourceQuota", "Pools", "NodePolicy", "ClusterPolicy", "List", None]), JSON)
@settings(max_examples=scale.examples(300))
def test_importing_any_object_raises_nothing(kind: str | None, rest: object) -> None:
    document = {**(rest if isinstance(rest, dict) else {"spec": rest}), "apiVersion": "gpushare.dev/v1"}
    assert is_sound(check([InputFile(name="x", document=document | ({"kind": kind} if kind else {}))]))


def test_impossible_number_of_gpus_is_rejected() -> None:
    assert "GS862" in codes(imported(node('nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: "99999999"')))


def test_documents_and_findings_are_limited() -> None:
    assert codes(imported(*["a: 1\n"] * (MAX_DOCUMENTS + 1))).count("GS866") == 1
    nodes = [node(f"nvidia.com/gpu.product: X{number}", f"n{number}") for number in range(MAX_OF_A_CODE * 2)]
    assert codes(imported(*nodes)).count("GS859") == MAX_OF_A_CODE + 1


def test_nodes_with_too_many_taints_are_left_out() -> None:
    rest = "spec:\n  taints:\n" + "".join(f"  - {{key: k{number}, effect: NoSchedule}}\n" for number in range(101))
    assert codes(imported(node(rest=rest))) == ["GS862"]
    assert codes(imported(node(rest=rest.replace("key: k100,", "key: k99,")))) == []


def test_names_with_control_characters_are_harmless_in_comments() -> None:
    found = imported(node('nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: "1"', '"a\\nspec: \\e[1m\\u2028"'))
    assert errors(found)
    assert "\x1b" not in found.text
