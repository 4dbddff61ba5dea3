"""The least rights that the commands on a running cluster need, as Kubernetes objects. Pure; writes nothing to a cluster.

Every request of `reader` is one of these rules. All are reads; `pods/proxy` and Secrets are large rights, and separate.
"""

from collections.abc import Sequence
from typing import Any

from gpushare.cluster.live.devices import BINDINGS, CLAIMS, CLASSES, POLICIES, SLICES, TEMPLATES
from gpushare.facts.vendors.amd import AMD
from gpushare.facts.vendors.nvidia import NVIDIA
from gpushare_node.contract.struct import Struct

NAME = "gpushare-viewer"
_GROUP = "rbac.authorization.k8s.io"
_VERSION = f"{_GROUP}/v1"


class Subject(Struct):
    """Who gets the rights. `namespace` is a service account's."""

    kind: str
    name: str
    namespace: str = ""


def objects(  # noqa: PLR0913 - one for each option of the command
    release: str,
    subject: Subject,
    *,
    plugin: str = "",
    amd: str = "",
    metrics: bool = False,
    values: bool = False,
    imports: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return roles and bindings. `metrics`: for `status --kills`; `values`: `drift` compares the Helm release's values too.

    `plugin`: the namespace with the device plugin's configs, if it is another. `amd`: that of AMD's operator, for `drift`.
    `imports`: the namespaces of which `import --live` reads ConfigMaps, and with `values` the Helm releases.
    """
    own = [_rule("configmaps", ["list"]), _rule("daemonsets", ["list"], group="apps")]
    if metrics:
        own.append(_rule("pods/proxy", ["get"]))
    if values:
        own.append(_rule("secrets", ["list"]))
    everywhere = [
        _rule("nodes", ["list"]),
        _rule("pods", ["get", "list"]),
        _rule("resourcequotas", ["list"]),
        _rule("events", ["list"]),
        {"apiGroups": ["resource.k8s.io"], "resources": [SLICES, CLASSES, CLAIMS, TEMPLATES], "verbs": ["list"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": [*POLICIES, *BINDINGS], "verbs": ["list"]},
    ]
    if metrics:
        everywhere.append({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})
    if imports:
        everywhere.append(_rule("clusterpolicies", ["list"], group=NVIDIA.domain))
    configs = [_rule("configmaps", ["list"]), *([_rule("secrets", ["list"])] if values else [])]
    places = {release: own}
    of_amd = [_rule("configmaps", ["list"]), _rule("deviceconfigs", ["list"], group=AMD.domain)]
    for namespace, rules in ((plugin, configs[:1]), *((one, configs) for one in imports), (amd, of_amd)):
        if namespace:
            known = places.setdefault(namespace, [])
            known += [rule for rule in rules if rule not in known]
    return [
        *_account(subject),
        {"apiVersion": _VERSION, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": everywhere},
        _binding("ClusterRole", subject, {"name": NAME}),
        *(one for namespace, rules in places.items() for one in _role(namespace, rules, subject)),
    ]


def _role(namespace: str, rules: Sequence[dict[str, Any]], subject: Subject) -> Sequence[dict[str, Any]]:
    metadata = {"name": NAME, "namespace": namespace}
    return (
        {"apiVersion": _VERSION, "kind": "Role", "metadata": metadata, "rules": list(rules)},
        _binding("Role", subject, dict(metadata)),
    )


def _account(subject: Subject) -> Sequence[dict[str, Any]]:
    if subject.kind != "ServiceAccount":
        return ()
    metadata = {"name": subject.name, "namespace": subject.namespace}
    return ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},)


def _rule(resource: str, verbs: list[str], group: str = "") -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs}


def _binding(role: str, subject: Subject, metadata: dict[str, Any]) -> dict[str, Any]:
    who = {"kind": subject.kind, "name": subject.name}
    who |= {"namespace": subject.namespace} if subject.namespace else {"apiGroup": _GROUP}
    reference = {"apiGroup": _GROUP, "kind": role, "name": NAME}
    return {"apiVersion": _VERSION, "kind": f"{role}Binding", "metadata": metadata, "roleRef": reference, "subjects": [who]}
