"""What a tool that syncs a bundle from Git contributes to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.resolved.plan import Plan
from gpushare_node.contract.struct import Struct

Object = dict[str, Any]


class Inputs(Struct):
    """What the rest of the bundle has for a tool: the `namespaces` by the names of their files, the values of NVIDIA's charts.

    `has_claims`: NVIDIA's DRA driver serves nodes, or did. `fence` specifies the admission policy on what releases nodes after
    our chart is gone. `text` gives values as the bundle's files have them.
    """

    namespaces: Mapping[str, Object]
    upstream_values: Object
    driver_values: Object
    has_claims: bool
    fence: Object
    text: Callable[[Object], str]


class Tool(ABC):
    """A tool, and one plan's objects of it; `key` is the tool's in the intent, and in `gitops.TOOLS` with its facts."""

    key: str

    def __init__(self, plan: Plan) -> None:
        self.plan, self.settings = plan, gitops.settings(plan.intent, self.key)
        self.namespace = self.settings["namespace"]
        self.kubectl = f"kubectl --namespace {self.namespace}"

    def name(self, part: str = "") -> str:
        """Return the name of the object that syncs the others, or of another one."""
        return f"{gitops.object_name(self.plan.intent, self.key)}-{part}".removesuffix("-")

    def chart(self) -> str:
        """Return the name of the object that installs the chart of the platform's stack."""
        return self.name(upstream.chart(self.plan.intent.platform.stack.value).name)

    @abstractmethod
    def objects(self, inputs: Inputs) -> Iterator[tuple[str, Object]]:
        """Yield the path in the bundle and the object of each file."""

    @abstractmethod
    def section(self) -> Iterator[str]:
        """Yield the lines of the bundle's README.md on the tool."""

    @abstractmethod
    def restore(self, values: str) -> str:
        """Return the command that gives NVIDIA's chart this file of the bundle as its values."""

    @abstractmethod
    def remove(self) -> Iterator[str]:
        """Yield the commands that remove our chart and leave NVIDIA's."""

    @abstractmethod
    def rest(self) -> Iterator[str]:
        """Yield the lines of the bundle's README.md on what becomes of the tool's other objects."""
