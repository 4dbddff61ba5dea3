"""`gpushare krm`: a ResourceList in, a ResourceList out. kustomize itself runs it in tests/e2e/pipelines."""

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
    return "".join(line if line == "\n" else " " * by + line for line in text.splitlines(keepends=True))


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


@pytest.fixture
def committed(intents: Path) -> Path:
    """The folder of the intents, with the bundle of the good one."""
    assert gpushare("compile", "good.yaml", cwd=intents).returncode == 0
    return intents


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_generator_adds_what_compile_prints(committed: Path, version: str) -> None:
    done = krm(received(GOOD, OTHER, version=version), committed)
    assert (done.returncode, done.stderr) == (0, "")
    printed = list(yaml.safe_load_all(gpushare("compile", "--manifests", "good.yaml", cwd=committed).stdout))
    assert items(done)[1:] == printed
    assert yaml.safe_load(done.stdout)["apiVersion"] == f"config.kubernetes.io/{version}"


def test_made_again_objects_take_the_place_of_the_former(intents: Path) -> None:
    once = krm(received(GOOD), intents)
    again = krm(received(GOOD, *(json.dumps(item) + "\n" for item in items(once))), intents)
    assert items(again) == items(once)


def test_ours_mean_the_same_in_go(committed: Path, tmp_path: Path) -> None:
    done = krm(received(GOOD, OTHER), committed)
    assert indented(DATA, 2) in done.stdout
    ours = done.stdout.replace(indented(OTHER, 2).replace("  apiVersion", "- apiVersion", 1), "")
    assert go_yaml.read({"list.yaml": ours}, tmp_path)["list.yaml"]["items"] == items(krm(received(GOOD), committed))


def test_what_is_made_carries_the_label_by_which_it_is_replaced(committed: Path) -> None:
    for one in items(krm(received(GOOD), committed)):
        assert one["kind"] == "Namespace" or one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gpushare"


def test_an_object_of_others_with_the_name_of_one_of_ours_is_an_error(committed: Path) -> None:
    [theirs] = [one for one in items(krm(received(GOOD), committed)) if one["metadata"]["name"] == "gpushare-profiles"]
    theirs |= {"data": {"a": "theirs"}}
    del theirs["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    done = krm(received(GOOD, json.dumps(theirs) + "\n"), committed)
    assert (done.returncode, items(done)) == (1, [theirs])
    [result] = yaml.safe_load(done.stdout)["results"]
    assert (result["severity"], result["tags"]["code"]) == ("error", "GS793")
    assert result["resourceRef"] == {"apiVersion": "v1", "kind": "ConfigMap", "name": "gpushare-profiles"}


def test_a_namespace_that_forbids_our_pods_is_an_error(committed: Path) -> None:
    labels = "labels: {pod-security.kubernetes.io/enforce: baseline}"
    theirs = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: gpu-system, {labels}}}\n"
    done = krm(received(GOOD, theirs), committed)
    assert (done.returncode, len(items(done))) == (1, 1)
    assert "error GS793: label pod-security.kubernetes.io/enforce must be privileged, not baseline" in done.stderr


def test_a_missing_lock_is_reported(intents: Path) -> None:
    done = krm(received(GOOD), intents, "--bundle", "elsewhere")
    assert done.returncode == 0
    assert len(items(done)) > 1
    [result] = yaml.safe_load(done.stdout)["results"]
    assert (result["severity"], result["tags"]["code"]) == ("warning", "GS792")
    assert "GS792" in done.stderr
    assert "--bundle" in done.stderr
    strict = krm(received(GOOD), intents, "--strict")
    assert (strict.returncode, items(strict)) == (1, [])
    assert "results" not in yaml.safe_load(krm(received("kind: Check\n", GOOD), intents).stdout)


def test_a_lost_lock_is_reported_once(committed: Path) -> None:
    (committed / "bundle/gpushare.lock.yaml").unlink()
    results = yaml.safe_load(krm(received(GOOD), committed).stdout)["results"]
    assert [result["tags"]["code"] for result in results] == ["GS791"]


@pytest.mark.parametrize("version", ["gpushare.dev/v2", "gpushare.dev/v1alpha1", "gpushare/v1", "3", "null"])
def test_a_configuration_of_another_version_is_an_error(version: str, intents: Path) -> None:
    """Also where a good intent is among the items: that would be checked, and nothing made."""
    done = krm(received(GOOD.replace("gpushare.dev/v1", version), GOOD), intents)
    assert (done.returncode, len(items(done))) == (1, 1)
    assert "apiVersion" in done.stderr


def test_an_intent_of_another_version_among_the_items_is_an_error(intents: Path) -> None:
    done = krm(received("kind: Check\n", GOOD, GOOD.replace("gpushare.dev/v1", "gpushare.dev/v2")), intents)
    assert (done.returncode, len(items(done))) == (1, 2)
    others = GOOD.replace("gpushare.dev/v1", "example.org/v1")
    assert krm(received("kind: Check\n", GOOD, others), intents).returncode == 0


def test_a_wrong_intent_makes_nothing_and_says_so_twice(intents: Path) -> None:
    done = krm(received(BAD, OTHER), intents)
    assert done.returncode == 1
    assert [item["metadata"]["name"] for item in items(done)] == ["other"]
    result = yaml.safe_load(done.stdout)["results"][0]
    assert result["severity"] == "error"
    assert result["resourceRef"]["kind"] == "ClusterIntent"
    assert result["tags"]["code"] in done.stderr
    assert done.stderr.startswith("ClusterIntent: error GS")


def test_a_warning_is_reported_and_with_strict_makes_nothing(intents: Path) -> None:
    told = krm(received(WARNING), intents)
    assert told.returncode == 0
    assert yaml.safe_load(told.stdout)["results"][0]["tags"]["code"] == "GS504"
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
