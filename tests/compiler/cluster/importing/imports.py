"""Inputs of an import, and its result, for the tests."""

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.cluster import importing
from gpushare.cluster.importing import Imported, InputFile, Wanted
from gpushare.core.diagnostics import Finding, is_error
from gpushare.pipeline import Compilation

AS_IT_IS = Wanted()
TO_DRA = Wanted(backend="dra")
T4 = 'nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: "4"'
A100 = 'nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB, nvidia.com/gpu.count: "2", nvidia.com/mig.strategy: mixed'


def node(labels: str = T4, name: str = "gpu-01", rest: str = "") -> str:
    """A Node with these labels, written as in a flow mapping."""
    return f"apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: {{{labels}}}\n{rest}"


def config_map(rest: str, key: str = "shared", name: str = "plugin-configs") -> str:
    """A ConfigMap with one text."""
    lines = "".join(f"    {line}\n" for line in rest.strip("\n").split("\n"))
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: gpu-operator}}\ndata:\n  {key}: |\n{lines}"


def sharing(replicas: object = 4, how: str = "timeSlicing", resource: str = "nvidia.com/gpu", flags: str = "") -> str:
    """A config of the device plugin."""
    return (
        f"version: v1\n{flags}sharing:\n  {how}:\n    renameByDefault: true\n    failRequestsGreaterThanOne: true\n"
        f"    resources:\n    - name: {resource}\n      replicas: {replicas}\n"
    )


def selected(labels: str = T4, config: str = "shared", name: str = "gpu-01") -> str:
    """A Node that selects a config."""
    return node(f"{labels}, nvidia.com/device-plugin.config: {config}", name)


def imported(*documents: str, wanted: Wanted = AS_IT_IS) -> Imported:
    """What the command makes of one file with these documents."""
    return check([InputFile(name="cluster.yaml", data="---\n".join(documents).encode())], wanted)


def check(inputs: list[InputFile], wanted: Wanted = AS_IT_IS) -> Imported:
    """What the command makes of the inputs."""
    found = importing.build(inputs, wanted=wanted)
    return found.checked(pipeline.check(found.text.encode(), "").findings) if found.text else found


def compiled(found: Imported) -> Compilation:
    """The intent of an import, compiled."""
    return pipeline.compile_intent(found.text.encode(), "intent.yaml", lock.EMPTY)


def codes(found: Imported) -> list[str]:
    """The codes of the findings, in order."""
    return [finding.code for finding in found.findings]


def errors(found: Imported) -> list[Finding]:
    """The findings that are errors."""
    return [finding for finding in found.findings if is_error(finding)]
