"""GpuVendor: what the compiler must know of a vendor of GPUs beside the names that the node runtime knows too."""

from collections.abc import Mapping
from typing import Any

from gpushare_node.contract.struct import NOTHING, Struct
from gpushare_node.contract.vendors import VendorNames


class OperatorObjects(Struct):
    """What our chart makes in the namespace of a vendor's operator, for it to read: objects of its kind, and a ConfigMap.

    A bundle has all of them in `folder`: `file` there is the text of the ConfigMap's key of that name, as JSON, and folder
    `specs` has a file for each object with its specification. For mappings in `open_fields` of it the server has no defaults;
    `naming` is the path of the setting in it that decides the names of devices.
    """

    folder: str
    file: str
    specs: str
    config_map: str
    kind: str
    plural: str
    version: str
    open_fields: frozenset[str]
    naming: tuple[str, ...]


class NodeLabels(Struct):
    """What a vendor's labeller calls a node's card, its partitions, memory and compute units of a device: newest first."""

    device: tuple[str, ...] = ()
    product: tuple[str, ...] = ()
    mode: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    units: tuple[str, ...] = ()


class GpuVendor(VendorNames):
    """A vendor, and how its programs are installed. `name` is the word with which the names of its cards begin.

    `exported` is the regular expression of all its GPU resources in kube-state-metrics, `asked_for` the CEL condition on `name`
    that it is one of them.

    Of pods of ours on its nodes: `host_paths` are what they read of the host, by a short name, and `is_privileged` says whether
    reading the GPUs needs it. Empty for the default vendor, whose GPUs its container runtime gives them.

    Of nodes for virtual machines, empty without them: label `workload_label` says what a node runs, `vgpu_label` names the
    config of its vGPUs.

    `compute_modes` are those into which its programs divide GPUs by mode `partition`, empty without that mode. `known_as` is a
    regular expression of the words by which people know its cards, if only the catalogue can describe them.

    `node_labels` are its labeller's, which `import` reads; `pci_vendor` is with which the PCI ids of its cards end,
    `driver` is of what the releases are that a card's modes need.

    `other_domains`: in which its programs write labels of nodes, beside `domain`.

    `charts` are by stack of an intent, the default one first; `operator_stack` is that of its operator. `namespace` is where
    its programs run by default. `longest_pool_name`: of the pools that its operator serves; None: as of others.
    `cluster_kinds` are the operator's own in the vendor's API group, which is `domain`.
    `catalogue` is the folder of cards under `profiles/`; `tool` shows a node's GPUs, `shown_by` those of a container.

    `has_shares`: the plugin offers a device to several containers, whose caps the node runtime enforces; elsewhere the driver
    bounds a device.
    """

    name: str
    exported: str
    asked_for: str
    charts: Mapping[str, str]
    cluster_kinds: tuple[str, ...]
    catalogue: str
    tool: str
    shown_by: tuple[str, ...]
    has_shares: bool
    workload_label: str = ""
    vgpu_label: str = ""
    compute_modes: frozenset[str] = frozenset()
    known_as: str = ""
    other_domains: tuple[str, ...] = ()
    operator_objects: OperatorObjects | None = None
    operator_stack: str = ""
    node_labels: NodeLabels = NodeLabels()
    pci_vendor: str = ""
    driver: str = ""
    namespace: str = ""
    longest_pool_name: int | None = None
    host_paths: Mapping[str, str] = NOTHING
    is_privileged: bool = False

    @property
    def written_labels(self) -> tuple[str, ...]:
        """The labels of nodes that the node runtime writes: who answers a request also has its answer removed."""
        answered = (self.layout_state_label,) if self.layout_taint else ()
        requests = tuple(filter(None, (self.plugin_label, self.layout_label)))
        return *requests, *answered, *(self.deploy_labels + client for client in self.clients)

    def chart_values(self, namespace: str) -> dict[str, Any]:
        """Return what our chart must know of a vendor other than the default; `namespace` is where its programs run."""
        made = self.operator_objects
        operator = {"apiVersion": f"{self.domain}/{made.version}", "kind": made.kind} if made else {}
        return {
            "namespace": namespace,
            "hostPaths": dict(self.host_paths),
            "privileged": self.is_privileged,
            **({"operator": {**operator, "configMap": made.config_map, "file": made.file}} if made else {}),
        }
