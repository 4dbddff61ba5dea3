"""Fake GPUs: a C library that real pynvml takes for NVML, over a state file that all processes of a fake node share.

`FakeNvml` is the tests' side; `python -m tests.support.fake_nvml` and the static program `tenant` are for other processes.
"""

from tests.support.fake_nvml.control import FakeNvml

__all__ = ["FakeNvml"]
