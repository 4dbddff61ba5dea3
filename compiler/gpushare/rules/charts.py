"""Which release's chart judges an intent. Makes no findings; the rules on values and versions use it."""

import re

from gpushare.catalog import upstream
from gpushare.catalog.upstream import UpstreamChart
from gpushare.intent.types import AmdStack, Platform, Stack

_NUMBER = r"\d{1,9}\.\d{1,9}\.\d{1,9}(-[0-9A-Za-z.-]+)?\Z"
VERSIONS = {Stack.GPU_OPERATOR: "v" + _NUMBER, Stack.DEVICE_PLUGIN: _NUMBER}
AMD_VERSIONS = {AmdStack.GPU_OPERATOR: "v" + _NUMBER, AmdStack.DEVICE_PLUGIN: _NUMBER}
"""The forms of a version, by stack."""


def judging_chart(platform: Platform) -> UpstreamChart:
    """Return the chart of the release that `platform.version` names, else the newest. Raises KeyError for stack existing."""
    chart = upstream.chart(platform.stack.value)
    is_version = platform.version is not None and re.match(VERSIONS[platform.stack], platform.version)
    return chart.at(platform.version) if is_version else chart
