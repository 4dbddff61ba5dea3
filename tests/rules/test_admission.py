"""Findings on whom admission refuses, and where it sends pods."""

import pytest

from tests.rules.intents import found, judged, pool, written

LIMITED = pool(namespaces="[jupyter]")
WIDE = "{scope: cluster}"
DEFAULT = {"default": "true"}
L4 = {"name": "serving", "card": "l4", "nodes": "{matchLabels: {node.example.org/flavour: gpu-l4}}"}


@pytest.mark.parametrize(
    ("code", "text", "path"),
    [
        ("GS620", written(LIMITED), "/spec/pools/notebooks/namespaces"),
        ("GS621", written(LIMITED, admission=WIDE), "/spec/admission/scope"),
        ("GS622", written(pool(), platform="{stack: existing}"), "/spec/platform/stack"),
        ("GS623", written(pool(**DEFAULT), pool(**L4, **DEFAULT), kubernetes='"1.36"'), "/spec/pools/serving/default"),
        ("GS624", written(pool(**DEFAULT)), "/spec/pools/notebooks/default"),
        ("GS624", written(pool(**DEFAULT), kubernetes='"1.36"', admission="{enforce: none}"), "/spec/pools/notebooks/default"),
        ("GS625", written(LIMITED, platform="{namespaces: [a, jupyter]}"), "/spec/platform/namespaces/1"),
    ],
)
def test_what_admission_leaves_open_or_shuts_is_told(code: str, text: str, path: str) -> None:
    assert [where for where, _, _ in found(text, code)] == [path]


@pytest.mark.parametrize(
    "text",
    [
        written(pool()),
        written(pool(), platform="{stack: existing, namespaces: [gpu-operator]}"),
        written(pool(**DEFAULT), kubernetes='"1.36"'),
        written(pool(), quotas="{atlas: {notebooks: 4}}", platform="{namespaces: [monitoring]}"),
    ],
)
def test_nothing_is_told_where_nothing_is_left_open(text: str) -> None:
    assert [finding.code for finding in judged(text) if finding.code.startswith("GS62")] == []


def test_the_platforms_namespaces_are_in_the_sentence() -> None:
    [(_, _, message)] = found(written(pool(), admission=WIDE, platform="{namespaces: [monitoring]}"), "GS621")
    assert "gpu-system, kube-system and monitoring" in message
