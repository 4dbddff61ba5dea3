"""Strict reading of rendered YAML: as YAML 1.1 and as YAML 1.2, and no key twice in either. yamllint's problems with it.

Most documents are in many bundles: what reads slowly reads each once.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import yaml
from ruamel.yaml import YAML
from yamllint import linter
from yamllint.config import YamlLintConfig

from gpushare.bundle import admission
from gpushare.core import emit
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
    """The documents under YAML 1.2, as ruamel.yaml reads them. No test changes them."""
    return [document for part in parts(text) for document in _document_1_2(part)]


@cache
def _document_1_2(text: str) -> list[Object]:
    reader = YAML(typ="safe", pure=True)
    reader.allow_duplicate_keys = False
    return [document for document in reader.load_all(text) if document is not None]


def parts(text: str) -> list[str]:
    """The text of each document, without the line that separates it from the one before."""
    return re.split(r"^---\n", text, flags=re.MULTILINE)


def problems(text: str) -> list[str]:
    """What yamllint finds in the documents, each as a file of its own."""
    first, *others = parts(text)
    separated = [first] if first else []
    separated += [f"---\n{other}" for other in others]
    return [problem for part in separated for problem in _problems(part)]


@cache
def _problems(text: str) -> list[str]:
    return [str(problem) for problem in linter.run(text, YAMLLINT)]


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
    """Whether Helm makes it at a moment of its own."""
    return "helm.sh/hook" in item["metadata"].get("annotations", {})


def measured(items: Iterable[Object]) -> dict[str, Any]:
    """Of rendered objects the specs of the policies on pods and the text of the tenancy, by kind and name."""
    specs = {f"{item['kind']} {item['metadata']['name']}": item["spec"] for item in items if item["kind"].endswith("Policy")}
    texts = {item["metadata"]["name"]: item["data"]["tenancy.json"] for item in items if "tenancy.json" in item.get("data", {})}
    return {name: spec for name, spec in specs.items() if "Admission" in name and "gpushare-fence" not in name} | texts


def known_before(values: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The same as the compiler knows it of a chart's values, before Helm runs."""
    given = {**values, "namespace": namespace}
    texts = {"gpushare-tenancy": emit.canonical_json(admission.tenancy(given))} if values["pools"] else {}
    specs = admission.policies(admission.document(given))
    return {**{name: spec for name, spec in specs.items() if "gpushare-fence" not in name}, **texts}


def pod_of(daemon_set: Object) -> Object:
    """The pod's spec."""
    pod: Object = daemon_set["spec"]["template"]["spec"]
    return pod


def containers_of(pod: Object) -> dict[str, Object]:
    """Init containers and containers by name."""
    return {container["name"]: container for container in [*pod.get("initContainers", []), *pod["containers"]]}
