"""What of the inputs is neither carried nor reported yet: one finding for each object, with the paths and values left over.

Every object that is read is entered here with all of its fields; reading marks them (`parts`), so that a field that no code
reads is in the rest. Owns the short list of fields that mean nothing for sharing, each with its reason.
"""

import json
import re
from collections.abc import Iterator, Sequence

from gpushare.cluster.importing.parts import PLACEHOLDER_HINT, Notes, Part, is_placeholder
from gpushare.core.diagnostics import Path
from gpushare.core.wording import pluralize, shorten
from gpushare.facts.nodes.clouds import CLOUDS
from gpushare_node.contract.struct import Struct

_MOST_LISTED = 60
_MOST_OF_A_VALUE = 120
_OF_CLOUDS = "".join(f"|{re.escape(start)}" for cloud in CLOUDS for start in cloud.counted_labels)

MEANINGLESS = (
    ("*", re.compile(r"(?:apiVersion|kind)\Z"), "what the object is"),
    (
        "*",
        re.compile(
            r"metadata/(?:name|generateName|namespace|uid|resourceVersion|generation|creationTimestamp|selfLink|deletionTimestamp"
            r"|managedFields/.*|ownerReferences/.*|finalizers/.*|annotations/.*)\Z"
        ),
        "the API server's bookkeeping, and notes",
    ),
    ("!Node", re.compile(r"(?:status|metadata/labels)/.*"), "what controllers report, and marks of the object itself"),
    (
        "Node",
        re.compile(
            r"status/(?:allocatable|conditions|addresses|daemonEndpoints|images|nodeInfo|config|features"
            r"|runtimeHandlers|volumes(?:InUse|Attached))(?:/.*)?\Z"
        ),
        "what the kubelet reports of the node beside its capacity",
    ),
    ("Node", re.compile(r"status/phase\Z"), "no longer used by Kubernetes"),
    ("Node", re.compile(r"status/capacity/(?!nvidia\.com/).*"), "resources of others"),
    (
        "Node",
        re.compile(r"spec/(?:podCIDRs?|providerID|externalID|configSource)(?:/.*)?\Z"),
        "network and cloud identity of the node",
    ),
    ("Node", re.compile(r"spec/unschedulable\Z"), "a cordon, which gpushare leaves as it is"),
    ("Node", re.compile(r"spec/taints/.*"), "taints that pass: `node_objects.taints` reads the lasting ones"),
    (
        "Node",
        re.compile(rf"metadata/labels/(?!nvidia\.com/{_OF_CLOUDS}).*"),
        "labels of others, of which one may select the pool",
    ),
    (
        "Node",
        re.compile(
            r"metadata/labels/nvidia\.com/(?:gfd\.timestamp|cuda\..*"
            r"|gpu\.(?:machine|family|mode|compute\..*|clique|present)|vgpu\..*|mps\.capable|mig\.capable|gpu-driver-upgrade-.*"
            r"|mig-[^/]*\.(?:engines\..*|multiprocessors|slices\..*|memory))\Z"
        ),
        "facts of hardware and driver that follow from the card, or that no layout depends on",
    ),
    (
        "Node",
        re.compile(r"metadata/labels/nvidia\.com/gpu\.deploy\..*"),
        "which of the operator's pods run there: written by the operator",
    ),
    ("ResourceQuota", re.compile(r"spec/hard/(?!.*(?:nvidia\.com|\.shared)).*"), "limits on other resources"),
    (
        "HelmRelease",
        re.compile(
            r"spec/(?:interval|timeout|releaseName|maxHistory|dependsOn|driftDetection|storageNamespace"
            r"|serviceAccountName|persistentClient|suspend|install|upgrade|uninstall|rollback|test"
            r"|chart/spec/(?:interval|sourceRef|reconcileStrategy|verify)|chartRef/(?:kind|namespace))(?:/.*)?\Z"
        ),
        "how Flux delivers the release",
    ),
    (
        "Application",
        re.compile(
            r"(?:operation|spec/(?:project|syncPolicy|ignoreDifferences|revisionHistoryLimit|info"
            r"|destination/(?:name|server)|sources?(?:/\d+)?/(?:repoURL|ref|helm/(?:releaseName|version"
            r"|skipCrds|passCredentials))))(?:/.*)?\Z"
        ),
        "how Argo CD delivers the release",
    ),
    ("ApplicationSet", re.compile(r"spec/(?!template/spec/source).*"), "for which clusters Argo CD makes Applications"),
    (
        "HelmChart",
        re.compile(
            r"spec/(?:repo|bootstrap|helmVersion|createNamespace|jobImage|timeout|failurePolicy|backOffLimit"
            r"|authSecret|repoCA.*|dockerRegistrySecret)(?:/.*)?\Z"
        ),
        "how the controller of k3s delivers the release",
    ),
    (
        "Kustomization",
        re.compile(r"(?!helmCharts/).*|helmCharts/\d+/(?:repo|releaseName|includeCRDs|valuesMerge)\Z"),
        "other parts of the kustomization, and how it delivers the release",
    ),
    (
        "Fleet",
        re.compile(r"(?!helm/).*|helm/(?:repo|releaseName|takeOwnership|force|atomic|timeoutSeconds)\Z"),
        "how Fleet delivers the release",
    ),
    ("ConfigMap", re.compile(r"immutable\Z"), "whether the ConfigMap may be edited"),
    ("ConfigMap", re.compile(r"binaryData/.*"), "the plugin reads text only"),
)
"""Kind (`*`: every one, `!Node`: every other one), paths with `/` between the keys, and why they mean nothing here."""


class Accounted(Struct):
    """An object that is read: its root, its kind for the list above, and what findings call it."""

    root: Part
    kind: str
    name: str


def report(objects: Sequence[Accounted], notes: Notes) -> None:
    """Report what is left over of each object."""
    for one in objects:
        _placeholders(one, notes)
        left = list(rest(one))
        if left:
            fields = "; ".join(
                f"{dotted(part.path[len(one.root.path) :])}: {shown(part.whole)}" for part in left[:_MOST_LISTED]
            )
            more = f"; and {len(left) - _MOST_LISTED} more" if len(left) > _MOST_LISTED else ""
            notes.warn(
                "GS871",
                left[0],
                f"{pluralize(len(left), 'field')} of {one.name} not imported: {fields}{more}",
                "what an intent has no field for stays as it is with `platform.stack: existing`; else set it by hand",
                on_key=True,
            )


def _placeholders(one: Accounted, notes: Notes) -> None:
    """Report values that a tool fills in later: what is imported is not what is applied."""
    for part in one.root.fresh().unread():
        mark = "/".join(map(str, part.path[len(one.root.path) :]))
        if is_placeholder(part.text) and "\n" not in part.text and not mark.startswith("metadata/annotations"):
            notes.warn("GS871", part, f"{shorten(part.text)} in {one.name} is a placeholder, not a value", PLACEHOLDER_HINT)


def rest(one: Accounted) -> Iterator[Part]:
    """Yield the values that were not read and that mean something."""
    for part in one.root.unread():
        path = "/".join(map(str, part.path[len(one.root.path) :]))
        if not any(_is_for(kind, one.kind) and words.match(path) for kind, words, _ in MEANINGLESS):
            yield part


def _is_for(kind: str, given: str) -> bool:
    return kind in ("*", given) or (kind[0] == "!" and kind[1:] != given)


def dotted(path: Path) -> str:
    """Return the path as in `devicePlugin.env[0].name`; a key with dots or slashes in brackets."""
    found = ""
    for step in path:
        if isinstance(step, int) or not step.replace("-", "").replace("_", "").isalnum():
            found += f"[{step}]"
        else:
            found += f".{step}" if found else step
    return found or "the value"


def shown(value: object) -> str:
    """Return a value in JSON, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "…"
    return text if len(text) <= _MOST_OF_A_VALUE else f"{text[: _MOST_OF_A_VALUE - 1]}…"
