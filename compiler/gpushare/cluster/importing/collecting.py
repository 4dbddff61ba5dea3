"""Objects to facts: which reader an object is for. ConfigMaps come last: the values say which of them the programs read.

A ConfigMap is known by reference, and by its shape where nothing refers to one; any other is left alone.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import PurePath

from gpushare.cluster.importing import helm_values, manager_configs, node_objects, plugin_configs, quotas, vendor_nodes
from gpushare.cluster.importing.accounting import Accounted
from gpushare.cluster.importing.documents import Reader, described
from gpushare.cluster.importing.facts import ChartSettings, Facts
from gpushare.cluster.importing.helm_values import Values
from gpushare.cluster.importing.manager_configs import ManagerFile
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import shorten
from gpushare.facts.catalog import upstream
from gpushare_node.contract.struct import replace

_CONFIG = re.compile(
    r"(?m)^(?:sharing|timeSlicing|mps|imex):|^\s+timeSlicing:|^resources:\s*(?:\{\s*|\n\s+)(?:gpus|migs)\b"
    r"|(?s:\A\s*version:\s*[\"']?v1\b.*^\s*sharing:)|^flags:(?:\s*\{[^}]*|\s*\n\s+)(?:migStrategy|plugin|mpsRoot|gfd"
    r"|failOnInitError|gdsEnabled|mofedEnabled|nvidiaDriverRoot|deviceDiscoveryStrategy|gdrcopyEnabled)\b"
)
_FILES = (manager_configs.MIG, manager_configs.VGPU)
_KEYS = ("version", "sharing", "flags", "resources", "timeSlicing", "mps", "imex", *(one.key for one in _FILES))
_ANY_KEY = re.compile(rf"(?m)(?:^|[{{,])[ \t]*[\"']?(?:{'|'.join((*_KEYS, vendor_nodes.PROFILES))})[\"']?[ \t]*:")
_DRA_GROUP = "resource.k8s.io/"
_OF_DRA_DRIVER = ("kubeletPlugin", "gpuResourcesEnabledOverride", "consumableShares")
"""Values that the chart of NVIDIA's DRA driver alone has."""
_VERSION_LABELS = ("app.kubernetes.io/version", "helm.sh/chart")


class Collector:
    """Sorts objects into facts."""

    def __init__(self, reader: Reader, notes: Notes) -> None:
        self._reader = reader
        self._notes = notes
        self._config_maps: list[tuple[Part, str]] = []
        self._own_files: set[str] = set()
        self.facts = Facts()

    def take(self, part: Part, file: str) -> None:
        """Read one object; a ConfigMap only in `finish`."""
        if part.at("kind").value == "ConfigMap":
            self._config_maps.append((part, file))
        elif vendor_nodes.is_config(part):
            self.facts.device_configs.append(part)
            self.facts.files_read.add(file)
        elif part.at("apiVersion").text.startswith(_DRA_GROUP):
            self.facts.dra_objects.append(part)
            self.facts.files_read.add(file)
        elif self._read(part, file):
            self.facts.files_read.add(file)

    def finish(self) -> None:
        """Read the ConfigMaps that values name; of a kind that no values name or hold, those that have its shape."""
        inline = any(one.holds_configs for one in self.facts.settings)
        readers: list[tuple[str, Callable[[Part, str, str], None], Callable[[Part], bool]]] = [
            ("config_group", self._configs, _is_config),
            *((one.group, partial(self._manager_data, one), one.is_like) for one in _FILES),
        ]
        for field, read, shape in readers:
            names = {getattr(one, field) for one in self.facts.settings} - {""}
            named = [one for one in self._config_maps if one[0].at("metadata", "name").text in names]
            chosen = named or [one for one in self._config_maps if any(shape(value) for _, value in one[0].at("data").items())]
            if inline and not named and field == "config_group":
                chosen = []
            for part, file in sorted(chosen, key=lambda one: described(one[0])):
                self._config_map(part, file, read)
        for part, file in self._config_maps:
            found = vendor_nodes.profiles(part, self._notes)
            if found is not None:
                self.facts.manager_profiles |= found
                self.facts.files_read.add(file)
            if self._is_misindented(part):
                self.facts.files_read.add(file)
        if self.facts.intents:
            self.facts.files_read = self._own_files

    def _config_map(self, part: Part, file: str, read: Callable[[Part, str, str], None]) -> None:
        self.facts.files_read.add(file)
        name, origin = part.at("metadata", "name").text, described(part)
        if namespace := part.at("metadata", "namespace").text:
            self.facts.plugin_namespaces.add(namespace)
        if all(one.root is not part for one in self.facts.objects):
            self.facts.objects.append(Accounted(root=part, kind="ConfigMap", name=origin))
        read(part.at("data"), name, origin)

    def _read(self, part: Part, file: str) -> bool:
        kind = part.at("kind").value
        if kind == "ClusterIntent":
            self.facts.intents.append(part)
            self._own_files.add(file)
        elif kind == "Node":
            self._node(part)
        elif kind == "ResourceQuota":
            self.facts.quotas += quotas.read(part, self._notes)
            if any(quotas.is_of_gpus(key) for key, _ in part.at("spec", "hard").items()):
                self._account(part, "ResourceQuota", described(part))
        elif kind == "ClusterPolicy" and part.at("apiVersion").text.startswith("nvidia.com/"):
            self._values(
                Values(
                    stack=helm_values.OPERATOR,
                    part=part.at("spec"),
                    version=_version(part),
                    namespace=part.at("metadata", "annotations", helm_values.RELEASE_NAMESPACE).text,
                ),
                described(part),
            )
            self._account(part, "ClusterPolicy", described(part))
        elif kind == "NodePolicy" or _is_chart(part):
            self.facts.of_bundle.append(part)
            self._own_files.add(file)
        elif kind is None:
            return self._bare(part, file)
        else:
            found = helm_values.values_in(part, self._reader.embedded, self._notes)
            for values in found:
                self._values(values, described(part))
            if found:
                self._account(part, str(kind), described(part))
            return bool(found) or helm_values.refused(part, self._notes)
        return True

    def _account(self, part: Part, kind: str, name: str) -> None:
        self.facts.objects.append(Accounted(root=part, kind=kind, name=name))

    def _node(self, part: Part) -> None:
        node = node_objects.read(part)
        if node is None:
            self._notes.error("GS850", part, "the Node has no name", "write metadata.name")
        else:
            self.facts.nodes.append(node)

    def _bare(self, part: Part, file: str) -> bool:
        stem = PurePath(file).stem
        if manager := next((one for one in _FILES if one.is_one(part)), None):
            origin = f"file {shorten(stem)}"
            self._account(part, "", origin)
            getattr(self.facts, manager.facts).extend(manager.read(part, "", origin, self._notes))
        elif plugin_configs.is_config(part):
            origin = f"config {shorten(stem)}"
            self._account(part, "", origin)
            self.facts.configs.append(plugin_configs.read(part, stem, "", origin, self._notes))
        elif any(part.has(key) for key in _OF_DRA_DRIVER):
            self._values(Values(stack=upstream.DRA, part=part), f"the values of {upstream.FILES[upstream.DRA]}")
        elif which := helm_values.stack_of(part):
            self._values(Values(stack=which, part=part), f"the values of {which}")
        elif found := helm_values.values_in_bare(part):
            for values in found:
                self._values(values, f"the values of {values.stack}")
            if part.has("helm"):
                self._account(part, "Fleet", f"file {shorten(stem)}")
        else:
            return helm_values.refused(part, self._notes)
        return True

    def _values(self, values: Values, origin: str) -> None:
        if values.stack == upstream.DRA:
            self.facts.dra_values.append(
                ChartSettings(
                    stack=values.stack, origin=origin, part=values.part, version=values.version, namespace=values.namespace
                )
            )
            return
        settings, data, mig_data = helm_values.settings(values.part, values.stack, origin, self._notes)
        settings = replace(
            settings,
            version=values.version,
            namespace=values.namespace,
            holds_configs=isinstance(data.value, dict) and bool(data.value),
        )
        self.facts.settings.append(settings)
        self._configs(data, settings.config_group, origin)
        self._manager_data(manager_configs.MIG, mig_data, settings.mig_group, origin)

    def _is_misindented(self, part: Part) -> bool:
        data = part.at("data")
        if not isinstance(data.at("sharing").value, dict) and not (data.has("flags") and data.has("version")):
            return False
        texts = {key: value for key, value in data.items() if not key.startswith("..")}
        key = next((key for key, value in texts.items() if value.value in (None, "")), "NAME")
        self._notes.error(
            "GS850",
            data.at("sharing") if data.has("sharing") else data.at("flags"),
            "the lines of the config are beside its name, not below it: the API server refuses the ConfigMap",
            f"indent them by two more spaces, below `{shorten(key)}: |-`",
            on_key=True,
        )
        return True

    def _configs(self, data: Part, group: str, origin: str) -> None:
        for name, value in data.items():
            document = self._inside(value)
            if document is not None:
                words = f"{origin}, config {shorten(name)}"
                self._account(document, "", words)
                self.facts.configs.append(plugin_configs.read(document, name, group, words, self._notes))

    def _manager_data(self, manager: ManagerFile, data: Part, group: str, origin: str) -> None:
        for _, value in data.items():
            document = self._inside(value)
            if document is not None and manager.is_one(document):
                self._account(document, "", f"{origin}, {manager.words}")
                getattr(self.facts, manager.facts).extend(manager.read(document, group, origin, self._notes))

    def _inside(self, value: Part) -> Part | None:
        """Return the document of a value of a ConfigMap, which must be text."""
        if isinstance(value.value, str):
            return self._reader.embedded(value)
        self._notes.error(
            "GS850",
            value,
            f"{shorten(value.path[-1])} is not text: the API server refuses the ConfigMap",
            f"write `{shorten(value.path[-1])}: |-`, and the config below it",
            on_key=True,
        )
        return value.fresh() if isinstance(value.whole, dict) else None


def may_be_config(text: str) -> bool:
    """Whether a text of a ConfigMap may be a file that `Collector.finish` reads: it has a key of one, at whatever place."""
    return bool(_ANY_KEY.search(text))


def _is_chart(part: Part) -> bool:
    """Whether a document is the chart/values.yaml of a bundle."""
    return all(part.has(key) for key in ("cluster", "stack", "partitioner", "pools", "admission")) and not part.has("kind")


def _is_config(value: Part) -> bool:
    is_like = bool(_CONFIG.search(value.fresh().text)) and not manager_configs.MIG.is_like(value)
    return plugin_configs.is_config(value) or is_like


def _version(policy: Part) -> Part | None:
    """Return the chart's version, which Helm's labels of the ClusterPolicy say."""
    for label in _VERSION_LABELS:
        part = policy.at("metadata", "labels", label)
        if part.text.removeprefix("gpu-operator-"):
            return part
    return None


def duplicates(facts: Facts, notes: Notes) -> None:
    """Keep one of each node; two that differ are an error."""
    kept: dict[str, Part] = {}
    nodes = []
    for node in facts.nodes:
        before = kept.setdefault(node.name, node.part)
        if before is node.part:
            nodes.append(node)
        elif before.at("metadata", "labels").value != node.part.at("metadata", "labels").value:
            notes.error(
                "GS864",
                node.part.at("metadata", "name"),
                f"Node {shorten(node.name)} is given twice, with other labels",
                "give the newer one only",
            )
    facts.nodes = nodes
