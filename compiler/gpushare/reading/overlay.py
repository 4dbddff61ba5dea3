"""Several documents as one: overlays merged into a base as JSON merge patches (RFC 7396), with the position of every value.

The merged document's text is that of all files, one after the other, so that every offset is in exactly one file. A value
has the position of the file that it comes from. Pure: Sources in, a Source out.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from gpushare.core.diagnostics import Finding, Path, Span
from gpushare.reading.source import Source
from gpushare.reading.tree import MAX_WEIGHT, TreeNode
from gpushare_node.contract.struct import replace

Range = tuple[int, int]


class Merged(Source):
    """A document that several files make up. `file` is the base's.

    `parts` are the files as they were read, in order; `starts` how many lines of the text are before each.
    """

    parts: tuple[Source, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def texts(self) -> Mapping[str, Source]:
        """Every file by its name."""
        return {part.file: part for part in self.parts}

    def locate(self, finding: Finding) -> Finding:
        """Return the finding with file and span; for a value that an overlay removed, the place of its null.

        So is an empty mapping the place of the last null that emptied it. Of the value and the `causes` of the finding the
        one is taken that the last file wrote or removed.
        """
        found = super().locate(finding)
        if finding.span or not self.starts:
            return found
        removed = self._removed(finding.path)
        own = self.span(*removed) if removed else found.span
        spans = [span for span in (own, *map(self._cause, finding.causes)) if span]
        if not spans:
            return found
        at = max(spans, key=lambda span: self._number(span.line))  # of one file the first, which is the value itself
        number = self._number(at.line)
        before = self.starts[number]
        own = Span(line=at.line - before, column=at.column, end_line=at.end_line - before, end_column=at.end_column)
        return replace(found, file=self.parts[number].file, span=own)

    def _number(self, line: int) -> int:
        """Return which file has this line of the merged text."""
        return bisect_right(self.starts, line - 1) - 1

    def _removed(self, path: Path) -> Range | None:
        """Return the place of the null that removed what the path names, or all that was in it."""
        node, _, steps = self._walk(path)
        if not isinstance(node, _Patched):
            return None
        if steps < len(path):
            return node.removed.get(str(path[steps]))
        return max(node.removed.values(), default=None) if not node.children else None

    def _cause(self, path: Path) -> Span | None:
        """Return where a value that contradicts another was written or removed; None if it never was there."""
        node, _, steps = self._walk(path)
        place = self._removed(path) or ((node.start, node.end) if node and steps == len(path) else None)
        return self.span(*place) if place else None


def merge(parts: Sequence[Source]) -> Source:
    """Return the base, which is first, with every overlay merged into it in turn.

    Findings on the texts are those of all files. If one is an error, the first file is returned with them, unmerged.
    """
    findings = tuple(finding for part in parts for finding in part.findings)
    if findings or any(part.root is None for part in parts):
        return Merged(file=parts[0].file, findings=findings, parts=tuple(parts))
    text, starts = "", []
    root: TreeNode | None = None
    for part in parts:
        if text and not text.endswith(("\n", "\r")):
            text += "\n"
        if text.endswith("\r") and part.text.startswith("\n"):  # together they would be one line break
            text += "\n"
        starts.append(Source(file="", text=text).line_of(len(text)) - 1)
        if part.root is not None:
            moved = _moved(part.root, len(text), {})
            root = _patched(root, moved) if root else moved
        text += part.text
    if root is not None and root.weight > MAX_WEIGHT:
        message = f"with this overlay the document has more than {MAX_WEIGHT} values"
        last = parts[-1]
        heavy = Finding(code="GS008", message=message, file=last.file, span=last.span(0, 0))
        return Merged(file=parts[0].file, findings=(heavy,), parts=tuple(parts))
    return Merged(
        file=parts[0].file,
        text=text,
        data=root.value if root else None,
        root=root,
        parts=tuple(parts),
        starts=tuple(starts),
    )


class _Patched(TreeNode):
    """A mapping that a patch was merged into, at the place of the patch if that wrote all that is in it.

    `removed`: the places of the nulls that removed its keys.
    """

    __slots__ = ("removed",)

    def __init__(self, start: int, end: int) -> None:
        super().__init__({}, start, end)
        self.removed: dict[str, Range] = {}


def _moved(node: TreeNode, by: int, done: dict[int, TreeNode]) -> TreeNode:
    """Return a copy of the tree with other offsets. What aliases share stays shared."""
    known = done.get(id(node))
    if known is not None:
        return known
    copy = done[id(node)] = TreeNode(node.value, node.start + by, node.end + by)
    copy.weight = node.weight
    if isinstance(node.children, dict):
        copy.children = {
            key: (start + by, end + by, _moved(child, by, done)) for key, (start, end, child) in node.children.items()
        }
    elif node.children is not None:
        copy.children = [_moved(child, by, done) for child in node.children]
    return copy


def _patched(target: TreeNode | None, patch: TreeNode) -> TreeNode:
    """Return the target after the patch, as RFC 7396 defines it. Neither tree is changed."""
    if not isinstance(patch.children, dict):
        return patch
    base = target if target is not None and isinstance(target.children, dict) else None
    children: dict[str, tuple[int, int, TreeNode]] = dict(base.children) if base and isinstance(base.children, dict) else {}
    removed = dict(base.removed) if isinstance(base, _Patched) else {}
    new = set()  # the keys whose values are the patch's alone
    for key, (start, end, value) in patch.children.items():
        before = children.get(key)
        if value.value is None:
            if before:
                del children[key]
                removed[key] = (start, max(end, value.end))
            continue
        removed.pop(key, None)
        after = _patched(before[2] if before else None, value)
        if before and after.start != value.start:
            children[key] = (before[0], before[1], after)
        else:
            new.add(key)
            children[key] = (start, end, after)
    place = patch if base is None or (new and new == children.keys()) else base
    result = _Patched(place.start, place.end)
    result.children, result.removed = children, removed
    result.value = {key: child.value for key, (_, _, child) in children.items()}
    result.weight = 1 + sum(1 + (end - start >> 5) + child.weight for start, end, child in children.values())
    return result
