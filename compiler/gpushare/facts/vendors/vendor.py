"""GpuVendor: what the compiler must know of a vendor of GPUs beside the names that the node runtime knows too."""

from collections.abc import Mapping

from gpushare_node.contract.struct import Struct
from gpushare_node.contract.vendors import VendorNames


class OperatorObjects(Struct):
    """What our chart makes in the namespace of a vendor's operator, for it to read: objects of its kind, and a ConfigMap.

    `key` is the section of the chart's values that has the namespace, and with which the option that names it begins.

    A bundle has all of them in `folder`: `file` there is the text of the ConfigMap's key of that name, as JSON, and folder
    `specs` has a file for each object with its specification. For mappings in `open_fields` of it the server has no defaults;
    `naming` is the path of the setting in it that decides the names of devices.
    """

    key: str
    folder: str
    file: str
    specs: str
    config_map: str
    kind: str
    plural: str
    version: str
    open_fields: frozenset[str]
    naming: tuple[str, ...]


class GpuVendor(VendorNames):
    """A vendor, and how its programs are installed. `name` is the word with which the names of its cards begin.

    `exported` is the regular expression of all its GPU resources in kube-state-metrics.

    Of nodes for virtual machines, empty without them: label `workload_label` says what a node runs, `vgpu_label` names the
    config of its vGPUs.

    `compute_modes` are those into which its programs divide GPUs by mode `partition`, empty without that mode. `known_as` is a
    regular expression of the words by which people know its cards, if only the catalogue can describe them.

    `other_domains`: in which its programs write labels of nodes, beside `domain`.

    `charts` are by stack of an intent. `cluster_kinds` are the operator's own in the vendor's API group, which is `domain`.
    `catalogue` is the folder of cards under `profiles/`; `tool` shows a node's GPUs, `shown_by` those of a container.

    `has_shares`: the plugin offers a device to several containers, whose caps the node runtime enforces; elsewhere the driver
    bounds a device.
    """

    name: str
    exported: str
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
