"""The `sharing` of a pool: which config of the device plugin its nodes have, and what that and their MIG layouts mean.

A node has the config of its label, the default of a chart, or one of the chart's fallbacks, in this order; a name that does not
exist stops the plugin (config-manager of k8s-device-plugin v0.20.0). Owns what the plugin offers for a config on given
hardware, and what an intent can say.
"""

from collections.abc import Sequence

from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.facts import GPU, MIG, SHARED, ChartSettings, Facts, ImportedNode, PluginConfig, Strategy
from gpushare.cluster.importing.node_layouts import Layouts
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_first, pluralize, shorten
from gpushare.intent.types import (
    Exclusive,
    Layout,
    LayoutGroup,
    Mig,
    MigStrategy,
    Mps,
    SharePlacement,
    Sharing,
    TimeSlicing,
)
from gpushare.offering import modes
from gpushare_node.contract.struct import Struct

LABEL = "nvidia.com/device-plugin.config"
_SHARED_BY = "nvidia.com/gpu.sharing-strategy"


class Selected(Struct):
    """The config of a node; `config` None: whole GPUs, or, with `by_labels`, what the node's own labels say."""

    config: PluginConfig | None = None
    origin: str = ""
    by_labels: bool = False


class Selector:
    """Selects the configs of nodes; `used` collects those that a node has, `offered` their nodes' resources."""

    def __init__(self, facts: Facts, notes: Notes) -> None:
        self._notes = notes
        self._settings = facts.settings
        groups = {one.config_group for one in facts.settings if one.config_group}
        named = [config for config in facts.configs if config.group.rpartition("/")[2] in groups]
        self.configs: Sequence[PluginConfig] = named or facts.configs
        self._by_name: dict[str, list[PluginConfig]] = {}
        for config in self.configs:
            self._by_name.setdefault(config.name, []).append(config)
        self._names = sorted(self._by_name)
        self.used: set[int] = set()
        self.offered: dict[int, set[str]] = {}

    def of_node(self, node: ImportedNode) -> Selected | None:
        """Return the node's config; None if it names one that does not exist or does not work.

        Where no config is said to hold, and the node's labels say that it shares, the labels decide.
        """
        selected = self._of_node(node)
        if selected is None or selected.by_labels or not _is_told(node):
            return selected
        strategy, replicas, _ = node_objects.strategy(node.labels)
        if selected.config is not None:
            own = selected.config.replicas.get(GPU)
            shared = selected.config.strategy if own is not None else Strategy.NONE
            if shared is not strategy or (own is not None and replicas not in (1, own.count)):
                hint = "wait until the device plugin has read it, or see in the plugin's log why it has not"
                self._differs(node, f"config {shorten(selected.config.name)}", hint)
            return selected
        if strategy is Strategy.NONE:
            return selected
        self._differs(node, selected.origin, "give the ConfigMap and the values that the device plugin has, to be sure")
        return Selected(by_labels=True, origin="labels of the nodes")

    def _differs(self, node: ImportedNode, origin: str, hint: str) -> None:
        strategy, replicas, _ = node_objects.strategy(node.labels)
        now = "whole GPUs" if strategy is Strategy.NONE else f"{strategy.value} with {pluralize(replicas, 'replica')}"
        part = node.part.at("metadata", "labels", _SHARED_BY)
        self._notes.warn("GS870", part, f"Node {shorten(node.name)} has {now}, which is not what was given: {origin}", hint)

    def _of_node(self, node: ImportedNode) -> Selected | None:
        wanted = node.labels.get(LABEL, "")
        part = node.part.at("metadata", "labels", LABEL)
        if wanted:
            if not self.configs:
                self._notes.warn(
                    "GS860",
                    part,
                    f"the config {shorten(wanted)} was not given: sharing is read from the labels",
                    "give the device plugin's ConfigMap to be sure",
                )
                return Selected(by_labels=True, origin="labels of the nodes")
            return self._named(wanted, part, f"label {LABEL}: {shorten(wanted)}")
        for one in self._settings:
            if one.default is not None:
                return self._named(one.default.text, one.default, f"default of {one.origin}")
        if self._settings and self.configs:
            return self._fallback(self._settings[0])
        return self._without_settings(node)

    def _named(self, name: str, part: Part, origin: str) -> Selected | None:
        found = self._by_name.get(name)
        if not found:
            if "\n" in name:
                problem = (
                    "the default is the text of a config, and it must be the name of one: the device plugin does not start"
                )
                hint = "write `default: NAME`, and the text as NAME below config.map (the operator's: devicePlugin.config.data)"
                self._notes.error("GS857", part, problem, hint)
                return None
            known = [*map(shorten, self._names[:3]), *self._names[3:]]
            hint = f"there are {join_first(known)}" if known else "give the device plugin's ConfigMap, too"
            self._notes.error("GS857", part, f"there is no config {shorten(name)}: the device plugin does not start", hint)
            return None
        if any(_content(other) != _content(found[0]) for other in found):
            self._notes.error(
                "GS864",
                found[1].part,
                f"the config {shorten(name)} is given twice with different content",
                "give only the ConfigMap that the plugin reads, or the chart's values that name it",
            )
            return None
        self.used |= {id(config) for config in found}
        return Selected(config=found[0], origin=origin) if found[0].works else None

    def _fallback(self, settings: ChartSettings) -> Selected | None:
        names = self._names
        for word in settings.fallbacks:
            if word == "named" and "default" in names:
                return self._named("default", settings.part, "fallback to the config `default`")
            if word == "single" and len(names) == 1:
                return self._named(names[0], settings.part, "fallback to the only config")
            if word == "empty":
                break
        return Selected(origin=f"{settings.origin}: no default config, so whole GPUs")

    def _without_settings(self, node: ImportedNode) -> Selected | None:
        """Return what the labels say, or the config that any chart would fall back to, if that agrees or nothing is said."""
        names = self._names
        likely = "default" if "default" in names else names[0] if len(names) == 1 else None
        labels = node.part.at("metadata", "labels")
        known = _SHARED_BY in node.labels
        if likely is None or (known and not self._agrees(likely, node)):
            return Selected(by_labels=True, origin="labels of the nodes")
        if not known:
            self._notes.warn(
                "GS860",
                labels,
                f"assumed: nodes without the label {LABEL} have the config {shorten(likely)}",
                "give the values of NVIDIA's chart, which name the default",
                on_key=True,
            )
        return self._named(likely, labels, "with which the labels of the nodes agree" if known else "assumed")

    def _agrees(self, name: str, node: ImportedNode) -> bool:
        strategy, replicas, _ = node_objects.strategy(node.labels)
        config = self._by_name[name][0]
        count = config.replicas.get(GPU)
        return config.strategy is strategy and (strategy is Strategy.NONE or (count is not None and count.count == replicas))


def _is_told(node: ImportedNode) -> bool:
    """Whether GFD's labels say how whole GPUs are shared. On a node with MIG instances they may be about these alone."""
    return _SHARED_BY in node.labels and not any(key.startswith("nvidia.com/mig-") for key in node.labels)


def _content(config: PluginConfig) -> tuple[object, ...]:
    replicas = tuple((name, count.count) for name, count in sorted(config.replicas.items()))
    return config.strategy, replicas, config.rename, config.mig_strategy, config.packed, config.works


class SharingSource(Struct):
    """What is shared: the strategy, the replicas by resource, and whether shared resources have names of their own."""

    strategy: Strategy = Strategy.NONE
    replicas: dict[str, int]
    rename: bool = True
    packed: bool = False


def of_config(config: PluginConfig) -> SharingSource:
    """Return what a config shares, on whatever nodes."""
    counts = {name: part.count or 1 for name, part in config.replicas.items()}
    return SharingSource(strategy=config.strategy, replicas=counts, rename=config.rename, packed=config.packed)


def of_labels(node: ImportedNode, strategy: str) -> SharingSource:
    """Return what the labels of a node say."""
    how, replicas, rename = node_objects.strategy(node.labels)
    counts, named = ({GPU: replicas} if how is not Strategy.NONE else {}), {}
    if strategy == "mixed":
        named = {MIG + name: (each, new) for name, (_, each, new) in node_objects.instances(node.labels).items() if each > 1}
    if named:
        how, rename = Strategy.TIME_SLICING, all(new for _, new in named.values())
        counts |= {name: each for name, (each, _) in named.items()}
    return SharingSource(strategy=how, replicas=counts, rename=rename)


def offered(layouts: Layouts, strategy: str) -> dict[str, str | None]:
    """Return the resources that a node offers before sharing, with the MIG profile of each, None for a whole GPU."""
    if strategy != "mixed":
        return {GPU: None}
    names = {profile for layout in layouts.gpus for profile, _ in layout}
    found: dict[str, str | None] = {MIG + name.replace("+", "."): name for name in sorted(names)}
    return found | ({GPU: None} if () in layouts.gpus else {})


def build(shares: SharingSource, layouts: Layouts, strategy: str, part: Part, notes: Notes) -> Sharing | None:
    """Return the sharing of an intent; None if there is none that means the same, which findings report."""
    names = offered(layouts, strategy if layouts.any else "none")
    replicas = {name: count for name, count in shares.replicas.items() if name in names and count > 1}
    if layouts.any:
        return _mig(shares, replicas, layouts, strategy, part, notes)
    if not replicas:
        return Exclusive()
    of_mode = Mps if shares.strategy is Strategy.MPS else TimeSlicing
    return of_mode(replicas=replicas[GPU], rename=shares.rename, placement=_placement(shares))


def _placement(shares: SharingSource) -> SharePlacement:
    return SharePlacement.PACK if shares.packed else SharePlacement.SPREAD


def _mig(  # noqa: PLR0913, PLR0917 - what it is made from
    shares: SharingSource, replicas: dict[str, int], layouts: Layouts, strategy: str, part: Part, notes: Notes
) -> Mig | None:
    if strategy == "none":
        notes.error(
            "GS856",
            layouts.part or part,
            "GPUs with MIG, but MIG strategy none: their instances are not offered",
            "set the MIG strategy mixed or single",
            on_key=True,
        )
        return None
    if shares.strategy is Strategy.MPS:
        notes.error(
            "GS856",
            part,
            "MPS on a node whose GPUs have MIG instances: the device plugin does not start",
            "share MIG instances by timeSlicing",
            on_key=True,
        )
        return None
    if strategy == "mixed" and GPU in replicas:
        notes.error(
            "GS862",
            part,
            "whole GPUs of a node are shared, beside others with MIG: an intent shares instances only",
            f"leave {GPU} out of the config, or give all GPUs of the node MIG",
            on_key=True,
        )
        return None
    names = offered(layouts, strategy)
    by_profile = tuple((str(names[name]), count) for name, count in sorted(replicas.items())) if strategy != "single" else ()
    return Mig(
        wanted=_wanted(layouts),
        strategy=MigStrategy.SINGLE if strategy == "single" else MigStrategy.MIXED,
        replicas=replicas.get(GPU, ()) if strategy == "single" else by_profile,
        rename=shares.rename or not replicas,
        placement=_placement(shares) if replicas else SharePlacement.SPREAD,
    )


def _wanted(layouts: Layouts) -> Layout | tuple[LayoutGroup, ...]:
    groups: dict[Layout, list[int]] = {}
    for index, layout in enumerate(layouts.gpus):
        groups.setdefault(layout, []).append(index)
    if len(groups) == 1:
        return layouts.gpus[0]
    return tuple(LayoutGroup(gpus=tuple(gpus), layout=layout) for layout, gpus in groups.items())


def _is_mixed(sharing: Sharing) -> bool:
    return isinstance(sharing, Mig) and sharing.strategy is MigStrategy.MIXED


def resources(sharing: Sharing, layouts: Layouts) -> dict[str, str | None]:
    """Return the resources that a pool with this sharing offers, with what a quota calls each; None for the only one."""
    suffix = SHARED if sharing.rename else ""
    if not _is_mixed(sharing):
        return {GPU + (suffix if sharing.replicas else ""): None}
    shared = dict(sharing.replicas) if isinstance(sharing.replicas, tuple) else {}
    return {name + (suffix if profile in shared else ""): profile or GPU for name, profile in offered(layouts, "mixed").items()}


def totals(sharing: Sharing, layouts: Layouts) -> dict[str, int]:
    """Return how many of each resource a node of a pool with this sharing offers."""
    found: dict[str, int] = {}
    replicas = dict(sharing.replicas) if isinstance(sharing.replicas, tuple) else sharing.replicas
    mixed = _is_mixed(sharing)
    for layout in layouts.gpus:
        for profile, number in layout or (("", 1),):
            each = replicas.get(profile, 1) if isinstance(replicas, dict) else replicas if profile or not layout else 1
            name = MIG + profile.replace("+", ".") if mixed and profile else GPU
            name += SHARED if each > 1 and sharing.rename else ""
            found[name] = found.get(name, 0) + number * each
    return found


def cap_comment(sharing: Sharing) -> str:
    """Return what a comment says of the memory cap; empty for pools that do not share."""
    if modes.named(sharing.mode.value).has_daemon:
        return "MPS gives every client memory / replicas already, which is `even`, the default"
    if sharing.replicas:
        return "before, no container had a limit; `cap: even` gives each the same part of the memory, which is what we advise"
    return ""


def name_of(config: PluginConfig | None) -> str:
    """Return what a comment calls the config."""
    return config.origin if config and config.origin else f"config {shorten(config.name)}" if config else ""
