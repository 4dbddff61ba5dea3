"""Strict reading of rendered YAML: as YAML 1.1 and as YAML 1.2, and no key twice in either."""

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any

import yaml
from ruamel.yaml import YAML
from yamllint.config import YamlLintConfig

from gpushare import __version__
from tests.support.paths import ROOT

Object = dict[str, Any]
YAMLLINT = YamlLintConfig(file=str(ROOT / ".yamllint"))


class _Strict(yaml.CSafeLoader):
    """PyYAML that refuses a second key of the same name instead of taking it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice in {keys} {node.start_mark}"
        return super().construct_mapping(node, deep)


def documents(text: str) -> list[Object]:
    """The documents under YAML 1.1, empty ones left out."""
    return [document for document in yaml.load_all(text, _Strict) if document is not None]


def documents_1_2(text: str) -> list[Object]:
    """The documents under YAML 1.2, as ruamel.yaml reads them."""
    reader = YAML(typ="safe", pure=True)
    reader.allow_duplicate_keys = False
    return [document for document in reader.load_all(text) if document is not None]


def identity(item: Object) -> tuple[str, str, str]:
    """What tells the objects of a bundle apart."""
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def by_identity(items: Iterable[Object]) -> dict[tuple[str, str, str], Object]:
    """The objects by kind, namespace and name, none of them twice."""
    items = list(items)
    twice = [key for key, count in Counter(map(identity, items)).items() if count > 1]
    assert not twice, twice
    return {identity(item): item for item in items}


def is_hook(item: Object) -> bool:
    """Whether Helm makes it at a moment of its own; the plain form has no such moments."""
    return "helm.sh/hook" in item["metadata"].get("annotations", {})


def as_plain(item: Object) -> Object:
    """A rendered object with the two labels that the plain form says otherwise."""
    plain = copy.deepcopy(item)
    labels = plain["metadata"]["labels"]
    assert labels.pop("helm.sh/chart") == f"gpushare-{__version__}"
    assert labels["app.kubernetes.io/managed-by"] == "Helm"
    labels["app.kubernetes.io/managed-by"] = "gpushare"
    return plain


def pod_of(daemon_set: Object) -> Object:
    """The pod's spec."""
    pod: Object = daemon_set["spec"]["template"]["spec"]
    return pod


def containers_of(pod: Object) -> dict[str, Object]:
    """Init containers and containers by name."""
    return {container["name"]: container for container in [*pod.get("initContainers", []), *pod["containers"]]}
