"""Stack: what a set of programs beside NVIDIA's device plugin adds to a bundle. The base class is that of programs without any.

Every method is asked of every stack, for every plan: what a plan does not need is empty. Texts are lines of the README.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from gpushare.bundle.lock import Lock
from gpushare.resolved.plan import Plan

Document = dict[str, Any]


class Stack:
    """The programs of a vendor, or those of a back end."""

    title: ClassVar[str]
    """What the step is called that installs them."""

    is_first: ClassVar[bool] = False
    """Whether that step is before the one of gpushare's chart."""

    def chart_files(self, plan: Plan, new_lock: Lock) -> Iterator[tuple[str, Document | str]]:  # noqa: ARG002 - adds none
        """Yield the files that templates of our chart read, each with its path."""
        yield from ()

    def values(self, plan: Plan, new_lock: Lock) -> Iterator[tuple[str, Document]]:  # noqa: ARG002 - as above
        """Yield the values of the charts that the bundle installs, each with its path."""
        yield from ()

    def images(self, plan: Plan) -> Iterator[str]:  # noqa: ARG002 - as above
        """Yield the lines of `images.txt` on these charts."""
        yield from ()

    def discovery_tolerations(self, plan: Plan) -> list[Document]:  # noqa: ARG002 - as above
        """Return what the workers of node feature discovery, which NVIDIA's chart installs, must tolerate on these nodes."""
        return []

    def discovery_rules(self, plan: Plan) -> list[Document]:  # noqa: ARG002 - as above
        """Return the rules by which it must label nodes."""
        return []

    def step(self, plan: Plan) -> Iterator[str]:  # noqa: ARG002 - as above
        """Yield the step that installs them."""
        yield from ()

    def removal(self, plan: Plan, new_lock: Lock) -> Iterator[str]:  # noqa: ARG002 - as above
        """Yield the section on removing what an earlier bundle has installed, and this one does not."""
        yield from ()

    def leaving(self, plan: Plan) -> Iterator[str]:  # noqa: ARG002 - as above
        """Yield what becomes of them when gpushare is removed."""
        yield from ()
