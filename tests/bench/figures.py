"""What makes a chart heavy for Helm, in numbers: to hold the stand-in of the benchmarks to the chart that it stands for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Files of the chart and its subcharts, and what `helm template` prints of it with its own values."""

    templates: int
    template_bytes: int
    actions: int
    crd_bytes: int
    values_bytes: int
    objects: int
    lines: int
    rendered_bytes: int


GPU_OPERATOR = Figures(
    templates=42,
    template_bytes=126_306,
    actions=1960,
    crd_bytes=322_694,
    values_bytes=430_300,
    objects=28,
    lines=1609,
    rendered_bytes=40_019,
)
"""NVIDIA's gpu-operator v26.7.0, with the node-feature-discovery 0.19.0 that it brings; `tests/e2e/nvidia` compares."""


def figures(chart: Path, rendered: str) -> Figures:
    """The figures of a chart in a folder."""

    def texts(pattern: str) -> list[str]:
        return [path.read_text(encoding="utf-8") for path in chart.rglob(pattern) if path.is_file()]

    templates, crds = texts("templates/**/*"), texts("crds/*")
    values = [*texts("values.yaml"), *texts("values.schema.json")]
    return Figures(
        templates=len(templates),
        template_bytes=size(templates),
        actions=sum(text.count("{{") for text in templates),
        crd_bytes=size(crds),
        values_bytes=size(values),
        objects=rendered.count("\nkind: "),
        lines=rendered.count("\n"),
        rendered_bytes=size([rendered]),
    )


def size(texts: list[str]) -> int:
    """UTF-8 bytes."""
    return sum(len(text.encode()) for text in texts)
