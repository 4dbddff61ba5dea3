"""`gpushare krm`: a ResourceList in, a ResourceList out. kustomize itself runs it in tests/pipelines."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compiler.cli.conftest import BAD, GOOD, WARNING
from tests.compiler.cli.process import gpushare
from tests.support import go_yaml

Done = subprocess.CompletedProcess[str]

DATA = "data:\n  a: \"on\"\n  b: '0o7'\n  c: 2001-01-01\n  d: 0644\n"
OTHER = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\n{DATA}"


def indented(text: str, by: int) -> str:
    """The text, each line further to the right."""
    return "".join(" " * by + line for line in text.splitlines(keepends=True))


def received(config: str = "", *items: str, version: str = "v1") -> bytes:
    """A ResourceList."""
    listed = "".join(f"-\n{indented(item, 2)}" for item in items) or "  []\n"
    function = f"functionConfig:\n{indented(config, 2)}" if config else ""
    return f"apiVersion: config.kubernetes.io/{version}\nkind: ResourceList\nitems:\n{listed}{function}".encode()


def krm(data: bytes, folder: Path, *arguments: str) -> Done:
    """A run of the function in a folder."""
    return gpushare("krm", *arguments, stdin=data, cwd=folder)


def items(done: Done) -> list[Any]:
    """The items that a run gives back."""
    document = yaml.safe_load(done.stdout)
    assert document["kind"] == "ResourceList"
    found: list[Any] = document["items"]
    return found


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_generator_adds_what_compile_prints(intents: Path, version: str) -> None:
    done = krm(received(GOOD, OTHER, version=version), intents)
    assert (done.returncode, done.stderr) == (0, "")
    printed = list(yaml.safe_load_all(gpushare("compile", "--manifests", "good.yaml", cwd=intents).stdout))
    assert items(done)[1:] == printed
    assert yaml.safe_load(done.stdout)["apiVersion"] == f"config.kubernetes.io/{version}"


def test_made_again_objects_take_the_place_of_the_former(intents: Path) -> None:
    once = krm(received(GOOD), intents)
    again = krm(received(GOOD, *(json.dumps(item) + "\n" for item in items(once))), intents)
    assert items(again) == items(once)


def test_objects_of_others_keep_their_text_and_ours_mean_the_same_in_go(intents: Path, tmp_path: Path) -> None:
    done = krm(received(GOOD, OTHER), intents)
    assert indented(DATA, 2) in done.stdout
    ours = done.stdout.replace(indented(OTHER, 2).replace("  apiVersion", "- apiVersion", 1), "")
    assert go_yaml.read({"list.yaml": ours}, tmp_path)["list.yaml"]["items"] == items(krm(received(GOOD), intents))


def test_a_wrong_intent_makes_nothing_and_says_so_twice(intents: Path) -> None:
    done = krm(received(BAD, OTHER), intents)
    assert done.returncode == 1
    assert [item["metadata"]["name"] for item in items(done)] == ["other"]
    result = yaml.safe_load(done.stdout)["results"][0]
    assert result["severity"] == "error"
    assert result["resourceRef"]["kind"] == "ClusterIntent"
    assert result["tags"]["code"] in done.stderr
    assert done.stderr.startswith("ClusterIntent: error GS")


def test_a_warning_is_told_and_with_strict_makes_nothing(intents: Path) -> None:
    told = krm(received(WARNING), intents)
    assert told.returncode == 0
    assert yaml.safe_load(told.stdout)["results"][0]["severity"] == "warning"
    strict = krm(received(WARNING), intents, "--strict")
    assert (strict.returncode, items(strict)) == (1, [])


def test_every_intent_among_the_items_is_checked(intents: Path) -> None:
    annotated = BAD.replace("metadata: {", "metadata: {annotations: {config.kubernetes.io/path: clusters/b.yaml}, ", 1)
    done = krm(received("kind: Check\n", GOOD, annotated), intents)
    assert done.returncode == 1
    assert len(items(done)) == 2
    assert "clusters/b.yaml: error GS" in done.stderr
    assert krm(received("", GOOD), intents).returncode == 0


@pytest.mark.parametrize("data", [
    b"", b"\xff", b"a: [", b"[]", b"kind: ResourceList", b"{kind: List, apiVersion: v1, items: []}",
    b"{kind: ResourceList, apiVersion: config.kubernetes.io/v1, items: 3}",
    b"{kind: ResourceList, apiVersion: config.kubernetes.io/v1, items: [a]}",
    b"{kind: ResourceList, apiVersion: config.kubernetes.io/v1, functionConfig: a}",
    b"[" * 5000, received(""), received("kind: Other\n", OTHER),
    b"a: &a [x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (n, n) for n in range(9)),
])
def test_what_is_no_list_or_has_no_intent_is_never_an_empty_success(data: bytes, intents: Path) -> None:
    done = krm(data, intents)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpushare: ")
    assert "Traceback" not in done.stderr
