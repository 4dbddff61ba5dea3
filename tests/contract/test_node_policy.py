"""The one thing that compiler and node runtime share: the form of a policy. The schema is the contract, both are held to it."""

import copy
import re
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpushare import mig, pipeline
from gpushare.bundle import lock
from gpushare.catalog import cards
from gpushare.core import emit
from gpushare.core.diagnostics import is_error
from gpushare.modes.mps import has_shares
from gpushare.nodes.taints import OUR_TAINTS
from gpushare.reading import schema
from gpushare.vendors.amd import MANAGER_MODES
from gpushare_node.contract import policy
from tests.support import scale
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
VALIDATOR = jsonschema.Draft7Validator(schema.load("node-policy.v1"))
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

OF_AMD = "{stack: amd-gpu-operator}"

PLATFORMS = [
    OF_AMD,
    "{stack: existing}",
    "{}",
    "{partitioner: mig-manager}",
    "{stack: device-plugin}",
]

MORE = ["", ", rollout: {maxUnavailable: 25%, onBusy: evict}", ", enforcement: {action: warn}"]
"""Further fields, in turn."""

VALUES: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    15,
    16,
    17,
    1025,
    1.0,
    1.5,
    "",
    "x",
    "X",
    "1",
    "a-b",
    "-a",
    "kill",
    "mig",
    "mps",
    "auto",
    "10%",
    "0%",
    "23:59",
    "24:00",
    "America/Indiana/Knox",
    "Sun",
    604801,
    "nvidia.com/",
    "0x20B010DE",
    "0x20b010de",
    "mig-01234567",
    "y" * 47,
    "y" * 48,
    "y" * 49,
    "y" * 63,
    "y" * 64,
    [],
    ["x"],
    [0],
    [0, 0],
    [0, 1.0, 1],
    {},
    {"x": 1},
    {"profile": "x"},
    "dra",
    "gpushare-x",
    {"gpushare-x": 1},
    {"driver": "gpu.nvidia.com", "shares": None, "onDemand": False},
    {"driver": "gpu.nvidia.com", "shares": None, "onDemand": True},
]
"""What each value of a policy is replaced by. None ends with a newline: Python's `$` lets it pass, JSON Schema's does not."""


def shipped() -> list[Path]:
    return sorted(EXAMPLES.glob("*/bundle/chart/files/policies/*.yaml"))


def spec_is_consistent(document: Any) -> bool:
    """What a schema cannot say: every GPU index once, and MIG on exactly where there are instances, if not on demand."""
    spec = document["spec"]
    listed = sorted(index for group in spec["gpus"] for index in group["indexes"])
    is_on_demand = bool((spec.get("dra") or {}).get("onDemand"))
    is_clear = is_on_demand or all(group["mig"] == bool(group["instances"]) for group in spec["gpus"])
    return is_clear and listed == list(range(int(spec["gpusPerNode"])))


def base() -> Any:
    """A small policy in which every field of the form occurs."""
    text = (EXAMPLES / "01-heterogeneous/bundle/chart/files/policies/training.yaml").read_text()
    document = yaml.load(text, LOADER)
    spec = document["spec"]
    instances = next(group["instances"] for group in spec["gpus"] if group["instances"])[:2]
    spec["gpusPerNode"] = 4
    plain = {"indexes": [1, 2], "mig": False, "instances": []}
    spec["gpus"] = [{"indexes": [0, 3], "mig": True, "instances": instances}, plain]
    spec["shares"] = [spec["shares"][0] | {"capMiB": 2048}]
    spec["resources"] = dict(list(spec["resources"].items())[:1])
    spec["namespaces"] = ["atlas"]
    spec["repartitioningTaint"] = OUR_TAINTS[-1]
    spec["migConfig"] = "all-disabled"
    spec |= {"backend": "device-plugin", "vendor": "nvidia", "managerConfig": "cpx-nps4-8-0123abcd"}
    spec["gpus"][1]["partition"] = {"compute": "CPX", "memory": "NPS4", "devices": 8, "memoryMiB": 24576}
    window = {"days": ["Sat", "Sun"], "start": "22:00", "durationSeconds": 21600, "timezone": "Europe/Zurich"}
    spec["rollout"] |= {"paused": False, "windows": [window]}
    return document


def by_dra() -> Any:
    """The same policy of a pool that NVIDIA's DRA driver serves."""
    document = base()
    spec = document["spec"]
    spec |= {"backend": "dra", "dra": {"driver": "gpu.nvidia.com", "shares": "memory", "onDemand": False}, "profile": None}
    spec["shares"] = [spec["shares"][0] | {"resource": "gpushare-training-1g-10gb"}]
    spec["resources"] = {"gpushare-training-1g-10gb": 2}
    return document


def on_demand() -> Any:
    """The same policy of a pool whose MIG instances the driver makes."""
    document = by_dra()
    document["spec"]["dra"]["onDemand"] = True
    for group in document["spec"]["gpus"]:
        group["instances"] = []
    return document


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def inner(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def mutants(document: Any) -> Iterator[Any]:
    """Every value replaced by every other, every field and item left out, every mapping and list with one too many."""
    for path in places(document):
        for value in VALUES:
            changed = copy.deepcopy(document)
            if path:
                inner(changed, path[:-1])[path[-1]] = value
            yield changed if path else value
        if path:
            changed = copy.deepcopy(document)
            del inner(changed, path[:-1])[path[-1]]
            yield changed
        changed = copy.deepcopy(document)
        match inner(changed, path):
            case dict() as mapping:
                mapping["extra"] = 1
                yield changed
            case list() as items if items:
                items.append(copy.deepcopy(items[-1]))
                yield changed


def spelled(path: Any) -> str:
    """A path of jsonschema as the runtime spells it."""
    plain = re.compile(r"[A-Za-z_]\w*")
    steps = ["." + step if isinstance(step, str) and plain.fullmatch(step) else f"[{step!r}]" for step in path]
    return "".join(steps).removeprefix(".")


def assert_same_verdict(document: Any) -> bool:
    """Whether the policy is accepted, which must be what the schema says; a refusal must lie where the schema's does.

    What only has more fields than the schema is a later release's: it is accepted, and the fields are named.
    """
    text = yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
    errors = list(VALIDATOR.iter_errors(yaml.load(text, LOADER)))
    added = [one for one in errors if one.validator == "additionalProperties" and one.validator_value is False]
    errors = [one for one in errors if one not in added]
    if not errors and spec_is_consistent(document):
        read = policy.read(text)
        assert bool(read.ignored) == bool(added)
        assert policy.read(emit.yaml_text(policy.document(read))) == read
        return not added
    with pytest.raises(policy.PolicyError) as raised:
        policy.read(text)
    path = raised.value.path.removeprefix(".")
    assert not errors or any(path.startswith(spelled(one.absolute_path)) for one in errors), (raised.value, errors)
    return False


@pytest.fixture(autouse=True)
def fast_yaml(monkeypatch) -> None:
    """libyaml reads the same values many times as fast; tests/node/core/test_policy.py has `yaml.safe_load` itself."""
    monkeypatch.setattr(yaml, "safe_load", lambda text: yaml.load(text, LOADER))


@pytest.mark.parametrize("path", shipped(), ids=lambda path: f"{path.parts[-6]}-{path.stem}")
def test_every_policy_of_every_example_is_accepted_and_written_the_same(path: Path) -> None:
    text = path.read_text()
    assert assert_same_verdict(yaml.load(text, LOADER))
    assert text.endswith(emit.yaml_text(policy.document(policy.read(text))))


def test_there_are_examples_of_every_mode() -> None:
    modes = {policy.read(path.read_text()).mode for path in shipped()}
    assert modes == set(policy.Mode)


def sharings(card: cards.Card) -> Iterator[str]:
    yield "{mode: exclusive}"
    for mode in card.partition_modes:
        if mode.compute in MANAGER_MODES:
            yield f"{{mode: partition, compute: {mode.compute}, memory: {mode.memory}}}"
    if card.vendor == "amd":
        return
    yield "{mode: time-slicing, replicas: 3}" + ("" if card.memory_mib else ", memory: {cap: none}")
    if has_shares(card) and (card.memory_mib or 0) > 8192:
        yield "{mode: mps, replicas: 4}"
    if card.mig is not None and all(profile.memory_mib for profile in card.mig.profiles):
        for layout in mig.maximal_layouts(card.mig)[:: 1 + len(mig.maximal_layouts(card.mig)) // 5]:
            whole = ", ".join(f"{name}: {count}" for name, count in layout)
            yield f"{{mode: mig, layouts: [{{gpus: [0, 2], layout: {{{whole}}}}}, {{gpus: [1, 3], layout: none}}]}}"
            yield f"{{mode: mig, layout: {{{layout[0][0]}: 1}}, replicas: {{{layout[0][0]}: 2}}}}"


def pools_of_every_kind(vendors: Container[str]) -> list[str]:
    """A pool for each card of the vendors and each way to share it, as lines of an intent."""
    known = [card for card in cards.ids() if cards.load(card).vendor in vendors]
    wanted = [(card, sharing) for card in known for sharing in sharings(cards.load(card))]
    return [
        f"    p{number}: {{card: {card}, nodes: {{matchLabels: {{p: p{number}}}}}, gpusPerNode: 4, sharing: {sharing}"
        f"{MORE[number % len(MORE)]}}}\n"
        for number, (card, sharing) in enumerate(wanted)
    ]


@pytest.mark.parametrize("platform", scale.part(list(PLATFORMS), len(PLATFORMS)))
def test_every_policy_of_a_matrix_of_intents_is_accepted(platform: str) -> None:
    vendors = {OF_AMD: {"amd"}, "{stack: existing}": {"amd", "nvidia"}}.get(platform, {"nvidia"})
    pools = pools_of_every_kind(vendors)
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: matrix}\nspec:\n"
    data = f"{head}  platform: {platform}\n  pools:\n{''.join(pools)}".encode()
    compilation = pipeline.compile_intent(data, "matrix.yaml", lock.EMPTY)
    assert [finding.message for finding in compilation.findings if is_error(finding)] == []
    policies = [artifact for artifact in compilation.artifacts if "/files/policies/" in artifact.path]
    assert len(policies) == len(pools) > (200 if "nvidia" in vendors else 35)
    for artifact in policies:
        assert assert_same_verdict(yaml.load(artifact.text, LOADER)), artifact.path


@pytest.mark.parametrize("form", [base, by_dra, on_demand])
def test_runtime_and_schema_agree_on_mutated_policies(form: Callable[[], Any]) -> None:
    verdicts = [assert_same_verdict(mutant) for mutant in list(mutants(form()))[:: 3 if scale.is_long else 21]]
    assert assert_same_verdict(form())
    assert verdicts.count(True) > (50 if scale.is_long else 5)
    assert verdicts.count(False) > (500 if scale.is_long else 60)
