"""Objects to facts: which reader an object is for. Objects of other kinds are left alone."""

from pathlib import PurePath

from gpushare.core.wording import shorten
from gpushare.importing import bundles, gitops_values, helm_values, mig_parted, node_objects, plugin_configs, quota_objects
from gpushare.importing.documents import Reader, described
from gpushare.importing.facts import Facts
from gpushare.importing.parts import Notes, Part

_CONFIG_WORDS = ("version:", "sharing:", "flags:", "timeSlicing:")


class Collector:
    """Sorts objects into facts."""

    def __init__(self, reader: Reader, notes: Notes) -> None:
        self._reader = reader
        self._notes = notes
        self.facts = Facts()

    def take(self, part: Part, file: str) -> None:
        """Read one object."""
        if self._read(part, file):
            self.facts.files_read.add(file)

    def _read(self, part: Part, file: str) -> bool:
        kind = part.at("kind").value
        if bundles.is_pools(part):
            self.facts.bundle.append(part)
        elif kind == "NodePolicy":
            self.facts.policies.append(part)
        elif kind == "Node":
            self._node(part)
        elif kind == "ConfigMap":
            return self._config_map(part)
        elif kind == "ResourceQuota":
            self.facts.quotas += quota_objects.read(part, self._notes)
        elif kind == "ClusterPolicy" and part.at("apiVersion").text.startswith("nvidia.com/"):
            self._values(part.at("spec"), helm_values.OPERATOR, described(part))
        elif kind == "Namespace":
            self.facts.namespaces.add(part.at("metadata", "name").text)
        elif kind is None:
            return self._bare(part, file)
        else:
            found = gitops_values.read(part, self._reader.embedded, self._notes)
            for values in found:
                self._values(values.part, values.stack, described(part))
            return bool(found)
        return True

    def _node(self, part: Part) -> None:
        node = node_objects.read(part)
        if node is None:
            self._notes.error("GS850", part, "the Node has no name", "write metadata.name")
        else:
            self.facts.nodes.append(node)

    def _bare(self, part: Part, file: str) -> bool:
        stem = PurePath(file).stem
        if mig_parted.is_config(part):
            self.facts.mig_configs += mig_parted.read(part, "", f"file {shorten(stem)}", self._notes)
        elif plugin_configs.is_config(part):
            origin = f"config {shorten(stem)}"
            self.facts.configs.append(plugin_configs.read(part, stem, "", origin, self._notes))
        elif which := helm_values.stack(part):
            self._values(part, which, f"the values of {which}")
        else:
            return False
        return True

    def _values(self, part: Part, which: str, origin: str) -> None:
        settings, data, mig_data = helm_values.read(part, which, origin, self._notes)
        self.facts.settings.append(settings)
        self._configs(data, settings.config_group, origin)
        self._mig_data(mig_data, settings.mig_group, origin)

    def _config_map(self, part: Part) -> bool:
        name, data = part.at("metadata", "name").text, part.at("data")
        texts = {key: value for key, value in data.items() if not key.startswith("..")}
        if any("mig-configs" in value.text or value.has("mig-configs") for value in texts.values()):
            self._mig_data(data, name, described(part))
            return True
        if any(_like_config(value) for value in texts.values()):
            self._configs(data, name, described(part))
            return True
        if data.has("sharing") or data.has("flags"):
            key = next((key for key, value in texts.items() if value.value in (None, "")), "NAME")
            self._notes.error("GS850", data.at("sharing") if data.has("sharing") else data.at("flags"),
                              "the lines of the config are beside its name, not below it: the API server refuses the ConfigMap",
                              f"indent them by two more spaces, below `{shorten(key)}: |-`", on_key=True)
            return True
        return False

    def _configs(self, data: Part, group: str, origin: str) -> None:
        for name, value in data.items():
            document = self._inside(value)
            if document is not None:
                words = f"{origin}, config {shorten(name)}"
                config = plugin_configs.read(document, name, group, words, self._notes)
                self.facts.configs.append(config)

    def _mig_data(self, data: Part, group: str, origin: str) -> None:
        for _, value in data.items():
            document = self._inside(value)
            if document is not None and mig_parted.is_config(document):
                self.facts.mig_configs += mig_parted.read(document, group, origin, self._notes)

    def _inside(self, value: Part) -> Part | None:
        """Return the document of a value of a ConfigMap, which must be text."""
        if isinstance(value.value, str):
            return self._reader.embedded(value)
        self._notes.error("GS850", value, f"{shorten(value.path[-1])} is not text: the API server refuses the ConfigMap",
                          f"write `{shorten(value.path[-1])}: |-`, and the config below it", on_key=True)
        return value if isinstance(value.value, dict) else None


def _like_config(value: Part) -> bool:
    return any(word in value.text for word in _CONFIG_WORDS) or plugin_configs.is_config(value)


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
