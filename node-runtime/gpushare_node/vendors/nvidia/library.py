"""Library: the only module that imports pynvml. Every NVML call goes through here, and fails with DriverError only.

Owns the translation of pynvml's several kinds of errors and the timing of calls. Never calls the library to describe an
error: if the library hangs, the call would not return.
"""

import re
from time import perf_counter
from typing import Any

from gpushare_node.vendors.driver import ABSENT, Code, DriverError, Observe, ignore

Handle = object
"""An opaque handle of NVML."""

_READS = re.compile(
    r"nvml(Init|Shutdown|EventSet[A-Z]\w*|DeviceRegisterEvents|(System|Device|GpuInstance|ComputeInstance)Get\w+)"
)
"""The calls that change no GPU: a list of what is allowed, so that a call that is added later is refused."""


class Library:
    """Calls NVML functions by name. `names` is pynvml itself, for its structures and constants.

    `reads_only`: a call that may change a GPU is not made, and fails with NO_PERMISSION.
    """

    def __init__(self, observe: Observe = ignore, *, reads_only: bool = False) -> None:
        # Not at the top: an import of 8,000 lines, which commands that do not use the driver need not pay for.
        import pynvml  # noqa: PLC0415

        self.names: Any = pynvml
        self._observe = observe
        self._reads_only = reads_only

    def call(self, name: str, *args: object) -> Any:
        """Return the result of pynvml's function. DriverError for every error, also if pynvml or the driver lacks it."""
        started = perf_counter()
        code: int | None = None
        try:
            return self.ask(name, *args)
        except DriverError as problem:
            code = problem.code
            raise
        finally:
            self._observe(name, perf_counter() - started, code)

    def find(self, name: str, *args: object) -> Any | None:
        """Like `call`; None if the driver, or this GPU, lacks it."""
        try:
            return self.call(name, *args)
        except DriverError as problem:
            if problem.code in ABSENT:
                return None
            raise

    def ask(self, name: str, *args: object) -> Any:
        """Like `call`, but without `observe`: for calls whose purpose is to wait."""
        self._refuse_writes(name)
        wrapper = getattr(self.names, name, None)
        if wrapper is None:
            raise DriverError(name, Code.FUNCTION_NOT_FOUND)
        try:
            return wrapper(*args)
        except self.names.NVMLError as problem:
            raise DriverError(name, int(problem.value)) from None
        except self.names.NVMLLibraryMismatchError:
            # Not one of pynvml's NVMLErrors: raised if an unversioned call finds no symbol.
            raise DriverError(name, Code.FUNCTION_NOT_FOUND) from None
        except UnicodeDecodeError:
            raise DriverError(name, Code.UNKNOWN) from None

    def raw(self, symbol: str, *args: object) -> int:
        """Return the C function's return code. For functions that are called so often that pynvml's objects cost too much."""
        self._refuse_writes(symbol)
        started = perf_counter()
        function = getattr(self.names.nvmlLib, symbol, None)
        code = int(Code.FUNCTION_NOT_FOUND) if function is None else int(function(*args))
        self._observe(symbol, perf_counter() - started, code or None)
        return code

    def _refuse_writes(self, name: str) -> None:
        if self._reads_only and not _READS.fullmatch(name):
            raise DriverError(name, Code.NO_PERMISSION)

    def has(self, name: str) -> bool:
        """Whether pynvml and the driver both have a call whose name equals its symbol."""
        return hasattr(self.names, name) and hasattr(self.names.nvmlLib, name)
