"""What the API server's kinds of patches do to an object: merge, JSON, strategic merge, and server-side apply with its owners.

Written after the documented behaviour. Labels and annotations have owners here; other fields are merged without.
"""

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tests.support.fake_api.refusals import Refusal, conflict, invalid

Object = dict[str, Any]
_Json = TypeVar("_Json")
_OWNED = ("labels", "annotations")
_MERGE_KEYS = {"conditions": "type", "addresses": "type", "ownerReferences": "uid"}


def copied(value: _Json) -> _Json:
    """A copy of a JSON value, in a fraction of `copy.deepcopy`'s time."""
    copy: _Json = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    return copy


def merge(target: Any, patch: Any) -> Any:
    """JSON merge patch."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any, name: str = "") -> Any:
    """Strategic merge: lists with a merge key are merged by it, `$patch: delete` takes an element out."""
    if isinstance(patch, list):
        return _strategic_list(target or [], patch, _MERGE_KEYS.get(name))
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$setElementOrder"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, key)
    return result


def _strategic_list(target: Sequence[Any], patch: Sequence[Any], merge_key: str | None) -> list[Any]:
    if merge_key is None:
        return copied(list(patch))
    result = list(target)
    for element in patch:
        at = next((index for index, old in enumerate(result) if old.get(merge_key) == element.get(merge_key)), None)
        if element.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(copied(element))
        else:
            result[at] = strategic(result[at], element)
    return result


def json_patch(target: Object, operations: Sequence[Mapping[str, Any]]) -> Object:
    """RFC 6902: add, remove, replace, test. What fails is 422, as a real server answers, and says no more than that."""
    result = copied(target)
    for operation in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        try:
            _operate(result, path, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise invalid("the server rejected our request due to an error in our request") from error
    return result


def _operate(target: Any, path: Sequence[str], operation: Mapping[str, Any]) -> None:
    *way, last = path
    for part in way:
        target = target[int(part)] if isinstance(target, list) else target[part]
    where: Any = last
    if isinstance(target, list):
        where = len(target) if last == "-" else int(last)
    match operation["op"]:
        case "test":
            # What is not there is null, as evanphx/json-patch has it.
            if (target.get(where) if isinstance(target, dict) else target[where]) != operation["value"]:
                raise ValueError(last)
        case "add" if isinstance(target, list):
            target.insert(where, operation["value"])
        case "add":
            target[where] = operation["value"]
        case "replace":
            target[where]
            target[where] = operation["value"]
        case "remove":
            del target[where]
        case other:
            raise ValueError(other)


def apply(before: Object, config: Object, manager: str, *, force: bool) -> Object:
    """Server-side apply: the manager owns exactly what it applies now; what it no longer applies goes, unless others own it."""
    if config.get("metadata", {}).get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
        raise invalid("metadata.uid: Invalid value: field is immutable")
    wanted = _entries(config)
    have = _entries(before)
    owners = _owners(before)
    mine = owners.pop((manager, "Apply"), set())
    clashes = {
        field: sorted(who for (who, _), fields in owners.items() if field in fields)
        for field, value in wanted.items()
        if field in have and have[field] != value
    }
    clashes = {field: who for field, who in clashes.items() if who}
    if clashes and not force:
        told = "; ".join(f'conflict with "{who[0]}": .metadata.{field[0]}.{field[1]}' for field, who in clashes.items())
        raise conflict(f"Apply failed with {len(clashes)} conflict(s): {told}")
    for fields in owners.values():
        fields.difference_update(clashes)
    gone = {field for field in mine - set(wanted) if not any(field in fields for fields in owners.values())}
    rest = {key: value for key, value in config.items() if key not in {"metadata", "apiVersion", "kind"}}
    after: Object = merge(before, rest)
    _write_entries(after, {**{field: value for field, value in have.items() if field not in gone}, **wanted})
    _write_owners(after, {**owners, (manager, "Apply"): set(wanted)})
    after["metadata"]["resourceVersion"] = config["metadata"].get("resourceVersion", after["metadata"]["resourceVersion"])
    return after


def own(before: Object, after: Object, manager: str) -> Object:
    """What an ordinary write does to the owners: what it changed is the writer's now, and nobody else's."""
    old, new = _entries(before), _entries(after)
    changed = {field for field, value in new.items() if old.get(field) != value}
    touched = changed | (set(old) - set(new))
    owners = {who: fields - touched for who, fields in _owners(before).items()}
    if changed:
        owners[manager, "Update"] = owners.get((manager, "Update"), set()) | changed
    _write_owners(after, owners)
    return after


def _entries(thing: Object) -> dict[tuple[str, str], str]:
    metadata = thing.get("metadata", {})
    return {(part, key): value for part in _OWNED for key, value in (metadata.get(part) or {}).items()}


def _write_entries(thing: Object, entries: Mapping[tuple[str, str], str]) -> None:
    metadata = thing["metadata"] = dict(thing["metadata"])
    for part in _OWNED:
        metadata[part] = {key: value for (where, key), value in entries.items() if where == part}


def _owners(thing: Object) -> dict[tuple[str, str], set[tuple[str, str]]]:
    return {
        (entry["manager"], entry["operation"]): {
            (part, key.removeprefix("f:"))
            for part in _OWNED
            for key in entry["fieldsV1"].get("f:metadata", {}).get(f"f:{part}", {})
            if key != "."
        }
        for entry in thing["metadata"].get("managedFields", [])
    }


def _write_owners(thing: Object, owners: Mapping[tuple[str, str], Iterable[tuple[str, str]]]) -> None:
    entries = []
    for (manager, operation), fields in sorted(owners.items()):
        parts: dict[str, Any] = {}
        for part, key in sorted(fields):
            parts.setdefault(f"f:{part}", {".": {}})[f"f:{key}"] = {}
        if parts:
            entries.append(
                {
                    "manager": manager,
                    "operation": operation,
                    "apiVersion": "v1",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": parts},
                }
            )
    thing["metadata"] = {**thing["metadata"], "managedFields": entries}


def patched(before: Object, content_type: str, body: Any, query: Mapping[str, str], manager: str) -> Object:
    """The object after a PATCH of that content type."""
    uid = body.get("metadata", {}).get("uid") if isinstance(body, dict) else None
    if uid and uid != before["metadata"]["uid"] and "apply" not in content_type:
        raise invalid(f'metadata.uid: Invalid value: "{uid}": field is immutable')
    match content_type:
        case "application/merge-patch+json":
            return own(before, merge(before, body), manager)
        case "application/strategic-merge-patch+json":
            return own(before, strategic(before, body), manager)
        case "application/json-patch+json":
            return own(before, json_patch(before, body), manager)
        case "application/apply-patch+yaml":
            if "fieldManager" not in query:
                raise Refusal(400, "BadRequest", "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
            return apply(before, body, manager, force=query.get("force") == "true")
        case _:
            raise Refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")
