"""What compiler and node runtime share: the form of a policy. What the compiler writes, the node runtime reads, and no more."""

import copy
import itertools
import re
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core import emit
from gpushare.core.diagnostics import is_error
from gpushare.facts import mig
from gpushare.facts.catalog import cards
from gpushare.offering.modes.mps import has_shares
from gpushare.vendors.amd import MANAGER_MODES
from gpushare_node.contract import policy
from gpushare_node.contract.names import OUR_TAINTS
from gpushare_node.contract.strict_document import PolicyError, spelled
from tests.support import scale
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
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


NAMES = [value for value in VALUES if isinstance(value, str) and re.fullmatch("[0-9a-z]([-a-z0-9]*[a-z0-9])?", value)]
TEXTS = [value for value in VALUES if value and isinstance(value, str)]
COUNTS = [0, 1, 2, 15, 16, 17, 1025, 1.0, 604801]
SIZES = COUNTS[1:]
ZONES = [one for one in TEXTS if re.fullmatch("[-A-Za-z0-9/]{1,32}", one) and one not in ("nvidia.com/",)]

ACCEPTED: dict[str, list[Any]] = {
    "metadata.name": [name for name in NAMES if len(name) <= 48],
    "metadata.cluster": [name for name in NAMES if len(name) <= 63],
    "spec.card.id": TEXTS,
    "spec.card.name": TEXTS,
    "spec.card.pciDeviceIds": [[]],
    "spec.card.pciDeviceIds[0]": ["0x20B010DE"],
    "spec.card.memoryMiB": [None, *SIZES],
    "spec.mode": ["mig", "mps"],
    "spec.profile": ["mig-01234567"],
    "spec.migConfig": [None, "", *(text for text in TEXTS if len(text) <= 63)],
    "spec.gpus[0].indexes[0]": [0],
    "spec.gpus[0].mig": [True],
    "spec.gpus[0].instances[0].profile": TEXTS,
    "spec.gpus[0].instances[0].profileId": [None, *COUNTS],
    "spec.gpus[0].instances[0].start": COUNTS,
    "spec.gpus[0].instances[0].size": SIZES,
    "spec.gpus[1].indexes[0]": [1, 1.0],
    "spec.gpus[1].indexes[1]": [2],
    "spec.gpus[1].mig": [False],
    "spec.gpus[1].instances": [[]],
    "spec.gpus[1].partition": [None],
    "spec.gpus[1].partition.devices": [1, 2, 1.0],
    "spec.gpus[1].partition.memoryMiB": [None, *SIZES],
    "spec.resources": [{"x": 1}, {"gpushare-x": 1}],
    "spec.resources['nvidia.com/mig-1g.5gb']": SIZES,
    "spec.shares[0].resource": ["nvidia.com/"],
    "spec.shares[0].profile": [None, "", *TEXTS],
    "spec.shares[0].replicas": [1, 2, 15, 16, 17, 1.0],
    "spec.shares[0].memoryMiB": [None, *SIZES],
    "spec.shares[0].capMiB": [None, *SIZES],
    "spec.shares[0].toleranceMiB": COUNTS,
    "spec.enforcement.action": ["kill"],
    "spec.enforcement.graceSeconds": COUNTS,
    "spec.enforcement.mechanism": ["mps", "auto"],
    "spec.enforcement.noticeSeconds": [None, *COUNTS],
    "spec.rollout.maxUnavailable": [*SIZES, "10%"],
    "spec.rollout.drainTimeoutSeconds": COUNTS,
    "spec.rollout.paused": [None, True, False],
    "spec.rollout.windows": [None, []],
    "spec.rollout.windows[0].days[0]": ["Sun"],
    "spec.rollout.windows[0].start": ["23:59"],
    "spec.rollout.windows[0].durationSeconds": [size for size in SIZES if size <= 604800],
    "spec.rollout.windows[0].timezone": ZONES,
    "spec.namespaces": [[], ["x"]],
    "spec.namespaces[0]": [name for name in NAMES if len(name) <= 63],
    "spec.repartitioningTaint": [None],
    "spec.backend": [None],
    "spec.vendor": [None],
    "spec.managerConfig": [None],
}
"""Which of VALUES each place of `base` may have; none where a place is not listed. All items of a list are as the first."""
OF_DRA: dict[str, list[Any]] = {
    "spec.profile": [None, "mig-01234567"],
    "spec.resources": [{"gpushare-x": 1}],
    "spec.resources['gpushare-training-1g-10gb']": SIZES,
    "spec.shares[0].resource": ["gpushare-x"],
    "spec.backend": ["dra"],
    "spec.dra": [{"driver": "gpu.nvidia.com", "shares": None, "onDemand": False}],
    "spec.dra.driver": [name for name in NAMES if len(name) <= 63],
    "spec.dra.shares": [None],
    "spec.dra.onDemand": [False],
}
ON_DEMAND: dict[str, list[Any]] = {
    "spec.gpus[0].mig": [True, False],
    "spec.gpus[1].mig": [True, False],
    "spec.gpus[0].instances": [[]],
    "spec.dra": [{"driver": "gpu.nvidia.com", "shares": None, "onDemand": True}],
    "spec.dra.onDemand": [True],
}
MAY_LACK = re.compile(
    r"spec\.(gpus\[1]\.partition|enforcement\.noticeSeconds|rollout\.(paused|windows)|repartitioningTaint|vendor|managerConfig"
    r"|card\.pciDeviceIds\[.]|gpus\[.]\.instances\[.]|rollout\.windows\[0](\.days\[.])?|namespaces\[0]|backend)"
)
"""What may be left out; the back end only where it is the device plugin."""
CROSSED = (("spec", "gpus"), ("spec", "gpusPerNode"), ("spec", "backend"), ("spec", "dra"), ("spec", "vendor"))
"""What is compared with other fields: the refusal may lie at the other one."""


def assert_refused(document: Any, path: tuple[Any, ...]) -> None:
    """It must be refused where it was changed, below that, or where two fields contradict each other."""
    with pytest.raises(PolicyError) as raised:
        policy.of_document(document)
    assert raised.value.steps[: len(path)] == path or path[:2] in CROSSED, (raised.value, path)


def assert_accepted(document: Any) -> None:
    """It must be read as it is written again."""
    found = policy.of_document(document)
    assert policy.read(emit.yaml_text(policy.document(found))) == found


@pytest.mark.parametrize("path", shipped(), ids=lambda path: f"{path.parts[-6]}-{path.stem}")
def test_every_policy_of_every_example_is_accepted_and_written_the_same(path: Path) -> None:
    text = path.read_text()
    found = policy.read(text)
    assert emit.yaml_text(policy.document(found)) == text
    assert found.ignored == ()


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
        found = policy.read(artifact.text)
        assert emit.yaml_text(policy.document(found)) == artifact.text, artifact.path


FORMS = pytest.mark.parametrize(
    ("form", "accepted"),
    [(base, ACCEPTED), (by_dra, ACCEPTED | OF_DRA), (on_demand, ACCEPTED | OF_DRA | ON_DEMAND)],
    ids=lambda one: getattr(one, "__name__", ""),
)


@FORMS
def test_each_place_has_the_values_that_it_may_have(form: Callable[[], Any], accepted: Mapping[str, list[Any]]) -> None:
    step = 1 if scale.is_long else 7
    for path, value in list(itertools.product(places(form()), VALUES))[::step]:
        changed = copy.deepcopy(form())
        if path:
            inner(changed, path[:-1])[path[-1]] = value
        changed = changed if path else value
        name = spelled(path)
        wanted = accepted.get(name, accepted.get(re.sub(r"(instances|days|pciDeviceIds)\[1]", r"\1[0]", name), []))
        if repr(value) in map(repr, wanted):
            assert_accepted(changed)
        else:
            assert_refused(changed, path)


@FORMS
def test_a_field_may_be_missing_only_where_it_is_optional(form: Callable[[], Any], accepted: Mapping[str, list[Any]]) -> None:
    document = form()
    assert_accepted(document)
    for path in list(places(document))[1:]:
        changed = copy.deepcopy(document)
        del inner(changed, path[:-1])[path[-1]]
        name = spelled(path)
        if MAY_LACK.fullmatch(name) and (name != "spec.backend" or "dra" not in document["spec"]):
            assert_accepted(changed)
        else:
            assert_refused(changed, path[:-1] if name.endswith("]") else path)


@FORMS
def test_more_than_a_policy_has_is_refused_or_named(form: Callable[[], Any], accepted: Mapping[str, list[Any]]) -> None:
    document = form()
    for path in places(document):
        changed = copy.deepcopy(document)
        match inner(changed, path):
            case dict() as mapping if path != ("spec", "resources"):
                mapping["extra"] = 1
                assert_refused(changed, (*path, "extra"))
                assert policy.read(yaml.safe_dump(changed)).ignored == (spelled((*path, "extra")),)
            case list() as items if items:
                items.append(copy.deepcopy(items[-1]))
                if path[-1] in ("gpus", "indexes"):
                    assert_refused(changed, path)
                else:
                    assert_accepted(changed)
