"""Fake GPUs: a C library that real pynvml takes for NVML, over a state file that all processes of a fake node share.

`Silicon` is the tests' side; `python -m tests.support.fake_nvml` and the static program `tenant` are for other processes.
"""

from tests.support.fake_nvml.control import Silicon

__all__ = ["Silicon"]
