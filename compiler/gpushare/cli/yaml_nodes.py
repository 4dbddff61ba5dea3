"""Objects in a YAML text whose owners are others: cut out as they are written, and read without a meaning of scalars.

A reader of YAML 1.1 and one of 1.2 differ on `on`, `0644`, `10:00:00` and `2024-02-30`. So a scalar is its text here, and what
is given back is the owner's own text, comments included.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpushare.core.record import Record

_NULL = "tag:yaml.org,2002:null"
_DEPTH = 3
"""Where a label is: `metadata.labels.<key>`."""


class YamlObject(Record):
    """An object. `text`: a document of its own; `fields`: its scalars, those of the metadata's mappings included."""

    text: str
    fields: Mapping[str, Any]


def document(text: str) -> dict[str, Node]:
    """Return the entries of the one mapping in the text; empty for anything else. Raises ValueError if it is not YAML."""
    try:
        reader = YAML(typ="safe", pure=True)
        reader.composer.warn_double_anchors = False  # two objects may use the same name
        return entries(reader.compose(text))
    except (YAMLError, RecursionError, ValueError) as problem:
        raise ValueError(f"it is not YAML: {str(problem).partition(chr(10))[0]}") from None


def entries(node: Node | None) -> dict[str, Node]:
    """Return the entries of a mapping whose keys are scalars; empty for another node."""
    if not isinstance(node, MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}


def scalars(node: Node, depth: int) -> Any:
    """Return a scalar as its text, None for null; a mapping with its entries down to this depth. Lists are left out."""
    if isinstance(node, ScalarNode):
        return None if is_null(node) else node.value
    return {key: scalars(one, depth - 1) for key, one in entries(node).items()} if depth else None


def is_null(node: Node | None) -> bool:
    """Return whether there is no node, or null."""
    return node is None or node.tag == _NULL


def items(node: Node | None) -> list[Node] | None:
    """Return the items of a list, none for null or no node; None for anything else."""
    if is_null(node):
        return []
    return node.value if isinstance(node, SequenceNode) else None


def cut(text: str, node: Node | None) -> YamlObject | None:
    """Return an object of the text; None for a node that is none. Raises ValueError if an alias in it names another object."""
    if not isinstance(node, MappingNode):
        return None
    start, end = node.start_mark, node.end_mark
    if any(not start.index <= one.start_mark.index < end.index for one in _every(node)):
        raise ValueError(f"an alias in the object at line {start.line + 1} has its anchor outside of that object")
    lines = _to_the_left(text[start.index : end.index], _column(node))
    # A block ends where the next token begins: its last line is that token's indentation.
    whole, _, last = lines.rpartition("\n")
    return YamlObject(text=f"{lines if last.strip() else whole}\n", fields=scalars(node, _DEPTH))


def with_labels(text: str, labels: Mapping[str, str]) -> str:
    """Return an object, as a document of its own, with more labels. It has metadata with a name, and none of the labels."""
    metadata = document(text)["metadata"]
    there = entries(metadata).get("labels")
    more = [f"{key}: {json.dumps(label)}" for key, label in labels.items()]
    if isinstance(there, MappingNode):
        return _with_entries(text, there, more)
    listed = f"{{{', '.join(more)}}}"
    if there is None:
        return _with_entries(text, metadata, [f"labels: {listed}"])
    colon = text.index(":", next(key for key, one in metadata.value if one is there).end_mark.index) + 1
    return f"{text[:colon]} {listed}{text[there.end_mark.index if there.value else colon :]}"


def _with_entries(text: str, node: Node, more: list[str]) -> str:
    """Return the text with more entries at the beginning of a mapping in it."""
    if isinstance(node, MappingNode) and not node.flow_style:
        key = node.value[0][0].start_mark
        return text[: key.index] + "".join(f"{entry}\n{' ' * key.column}" for entry in more) + text[key.index :]
    first = text.index("{", node.start_mark.index) + 1
    return text[:first] + "".join(f"{entry}, " for entry in more) + text[first:]


def _every(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes in it, each once: an alias is the node that it names."""
    seen: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, MappingNode):
            waiting += (part for pair in one.value for part in pair)
        elif isinstance(one, SequenceNode):
            waiting += one.value
    yield from seen.values()


def _column(node: MappingNode) -> int:
    """Return how far a mapping in block style is to the right: its keys, before which may be an anchor or a `?`."""
    if node.flow_style or not node.value:
        return 0
    return int(min(node.start_mark.column, node.value[0][0].start_mark.column))


def _to_the_left(text: str, columns: int) -> str:
    """Return the text with its lines, but the first, so much further to the left, as far as they are blank there."""
    first, *others = text.split("\n")
    return "\n".join([first, *(line[min(columns, len(line) - len(line.lstrip(" "))) :] for line in others)])
