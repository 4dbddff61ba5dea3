"""The objects of the API server's double: versions, selectors, the history that watches follow. No HTTP."""

import datetime
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.fake_api.patches import copied
from tests.support.fake_api.quantities import canonicalise
from tests.support.fake_api.refusals import Refusal, conflict, expired, not_found

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace (empty: of the cluster), name."""
KINDS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "events": ("v1", "Event"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "daemonsets": ("apps/v1", "DaemonSet"),
    "configmaps": ("v1", "ConfigMap"),
    "resourcequotas": ("v1", "ResourceQuota"),
    "secrets": ("v1", "Secret"),
    "resourceslices": ("resource.k8s.io/v1", "ResourceSlice"),
    "deviceclasses": ("resource.k8s.io/v1", "DeviceClass"),
    "resourceclaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "resourceclaimtemplates": ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    "validatingadmissionpolicies": ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    "validatingadmissionpolicybindings": ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    "mutatingadmissionpolicies": ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
    "mutatingadmissionpolicybindings": ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"),
    "deviceconfigs": ("amd.com/v1alpha1", "DeviceConfig"),
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One write. `before` None: made; `after` None: gone."""

    version: int
    plural: str
    before: Object | None
    after: Object | None


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """All objects. `changed` is notified at every write, and guards everything."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 1000
        self.oldest = 0
        self.bookmarks = 0
        self._objects: dict[Key, Object] = {}
        self._changes: list[Change] = []

    def find(self, key: Key) -> Object:
        with self.changed:
            if key not in self._objects:
                raise not_found(key[0], key[2])
            return copied(self._objects[key])

    def select(self, plural: str, namespace: str, chosen: Callable[[Object], bool]) -> tuple[list[Object], int]:
        with self.changed:
            found = [
                copied(thing)
                for (kind, place, _), thing in sorted(self._objects.items())
                if kind == plural and namespace in {"", place} and chosen(thing)
            ]
            return found, self.version

    def create(self, key: Key, thing: Object) -> Object:
        with self.changed:
            if key in self._objects:
                raise Refusal(409, "AlreadyExists", f'{key[0]} "{key[2]}" already exists')
            version, kind = KINDS[key[0]]
            metadata = {**thing.get("metadata", {}), "name": key[2]}
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", now_text())
            if key[1]:
                metadata["namespace"] = key[1]
            return self._put(key, {**copied(thing), "apiVersion": version, "kind": kind, "metadata": metadata})

    def change(self, key: Key, change: Callable[[Object], Object]) -> Object:
        """Read, change, write, as one. The same again is no write; a version that the change carries must be the one there."""
        with self.changed:
            before = self.find(key)
            after = change(copied(before))
            wanted = after["metadata"].get("resourceVersion")
            if wanted and wanted != before["metadata"]["resourceVersion"]:
                raise conflict("the object has been modified; please apply your changes to the latest version and try again")
            after["metadata"] = {**after["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}
            return before if after == before else self._put(key, after)

    def drop(self, key: Key) -> Object:
        with self.changed:
            before = self.find(key)
            del self._objects[key]
            self._note(Change(version=self.version + 1, plural=key[0], before=before, after=None))
            return before

    def since(self, plural: str, version: int) -> tuple[list[Change], int]:
        """What was written after that version, and the version now. 410 if that has been forgotten."""
        with self.changed:
            if version < self.oldest:
                raise expired(version)
            return [change for change in self._changes if change.plural == plural and change.version > version], self.version

    def forget(self) -> None:
        """Compact: watches from before now get 410."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self._changes.clear()
            self.changed.notify_all()

    def bookmark(self) -> None:
        """Send a bookmark on every watch that allows it."""
        with self.changed:
            self.version += 1
            self.bookmarks += 1
            self.changed.notify_all()

    def _put(self, key: Key, thing: Object) -> Object:
        before = self._objects.get(key)
        thing["metadata"]["resourceVersion"] = str(self.version + 1)
        if not (thing.get("spec") or {}).get("taints", True):
            del thing["spec"]["taints"]  # as Go leaves out what is empty
        if key[0] in ("nodes", "pods"):
            canonicalise(thing)
        self._objects[key] = thing
        self._note(Change(version=self.version + 1, plural=key[0], before=before, after=copied(thing)))
        return copied(thing)

    def _note(self, change: Change) -> None:
        self.version = change.version
        self._changes.append(change)
        self.changed.notify_all()


def chooser(query: Mapping[str, str]) -> Callable[[Object], bool]:
    """What the two selectors of a query choose. Field selectors: those in `values`, as = or !=."""
    labels = [one for one in query.get("labelSelector", "").split(",") if one]
    fields = [one for one in query.get("fieldSelector", "").split(",") if one]

    def chosen(thing: Object) -> bool:
        have = thing["metadata"].get("labels") or {}
        values = {
            "metadata.name": thing["metadata"]["name"],
            "metadata.namespace": thing["metadata"].get("namespace", ""),
            "spec.nodeName": (thing.get("spec") or {}).get("nodeName", ""),
            "spec.driver": (thing.get("spec") or {}).get("driver", ""),
            "status.phase": thing.get("status", {}).get("phase", ""),
            "reason": thing.get("reason", ""),
            "involvedObject.name": (thing.get("involvedObject") or {}).get("name", ""),
            "involvedObject.uid": (thing.get("involvedObject") or {}).get("uid", ""),
            "involvedObject.kind": (thing.get("involvedObject") or {}).get("kind", ""),
        }
        return all(_holds(have, label) for label in labels) and all(_holds(values, field, closed=True) for field in fields)

    return chosen


def _holds(have: Mapping[str, str], requirement: str, *, closed: bool = False) -> bool:
    if "!=" in requirement:
        key, value = requirement.split("!=")
        return have.get(key) != value
    if "=" in requirement:
        key, value = requirement.replace("==", "=").split("=")
        if closed and key not in have:
            raise Refusal(400, "BadRequest", f"field label not supported: {key}")
        return have.get(key) == value
    return requirement[1:] not in have if requirement.startswith("!") else requirement in have


def event_of(change: Change, chosen: Callable[[Object], bool]) -> tuple[str, Object] | None:
    """What a watch with that selector sees of a change: leaving the selection is DELETED, entering it ADDED."""
    was = change.before is not None and chosen(change.before)
    if change.after is not None and chosen(change.after):
        return ("MODIFIED" if was else "ADDED"), change.after
    if not was or change.before is None:
        return None
    gone = change.after if change.after is not None else change.before
    return "DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(change.version)}}
