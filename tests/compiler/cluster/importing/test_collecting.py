"""Which texts are read as files of the programs that share and divide GPUs."""

import pytest

from gpushare.cluster.importing import collecting


@pytest.mark.parametrize(
    "text",
    [
        "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
        "{version: v1, flags: {migStrategy: none}}",
        "  timeSlicing:\n    resources: []",
        "mps: {resources: []}",
        '"sharing": {}',
        "resources: {gpus: []}",
        "imex: {channelIDs: [0]}",
        "version: v1\nmig-configs: {all-disabled: []}",
        "vgpu-configs:\n  default: []",
        '{"gpu-config-profiles": {"default": {}}}',
    ],
)
def test_a_text_that_may_be_a_config_is_known_before_it_is_parsed(text: str) -> None:
    assert collecting.may_be_config(text)


@pytest.mark.parametrize("text", ["", "\x1b[2J", "conversion: v1", "a: version", "about sharing, and flags"])
def test_another_text_is_no_config(text: str) -> None:
    assert not collecting.may_be_config(text)
