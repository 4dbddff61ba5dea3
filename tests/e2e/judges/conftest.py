"""What the judges of the chart share with its other tests."""

from tests.chart.conftest import run_helm

__all__ = ("run_helm",)
