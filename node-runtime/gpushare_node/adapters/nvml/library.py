"""Library: the one place where pynvml is imported. Every NVML call goes through here, and fails as DriverError only.

Owns the translation of pynvml's several kinds of failure and the timing of calls. Never asks the library to explain an
error: one that has hung would not come back.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from gpushare_node.adapters.nvml.driver import Code, DriverError

Handle = object
"""Something of NVML's that only NVML can read."""

Observe = Callable[[str, float, int | None], None]
"""Told of every call: its name, the seconds it took, its code or None if it succeeded. From any thread."""

ABSENT = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND})
"""The answers by which a driver says that it lacks something, as opposed to: it went wrong."""

SESSION_OVER = frozenset({Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH})
"""The answers after which nothing works until the session is opened again: the driver is being replaced."""


def ignore(_call: str, _seconds: float, _code: int | None) -> None:
    """Observes nothing."""


class Library:
    """NVML by the names of its calls. `names` is pynvml itself, for its structures and constants."""

    def __init__(self, observe: Observe = ignore) -> None:
        # Not at the top: an import of 8,000 lines, which commands that touch no driver need not pay for.
        import pynvml  # noqa: PLC0415

        self.names: Any = pynvml
        self._observe = observe

    def call(self, name: str, *args: object) -> Any:
        """What pynvml's function returns. DriverError whatever goes wrong, also where pynvml or the driver lacks it."""
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
        """As `call`; None where the driver, or this GPU, lacks it."""
        try:
            return self.call(name, *args)
        except DriverError as problem:
            if problem.code in ABSENT:
                return None
            raise

    def ask(self, name: str, *args: object) -> Any:
        """As `call`, but nobody is told: for calls that are made to wait."""
        wrapper = getattr(self.names, name, None)
        if wrapper is None:
            raise DriverError(name, Code.FUNCTION_NOT_FOUND)
        try:
            return wrapper(*args)
        except self.names.NVMLError as problem:
            raise DriverError(name, int(problem.value)) from None
        except self.names.NVMLLibraryMismatchError:
            # Not one of pynvml's NVMLErrors: raised where an unversioned call finds no symbol.
            raise DriverError(name, Code.FUNCTION_NOT_FOUND) from None
        except UnicodeDecodeError:
            raise DriverError(name, Code.UNKNOWN) from None

    def raw(self, symbol: str, *args: object) -> int:
        """The code that the C function returns. For what is called so often that pynvml's objects cost too much."""
        started = perf_counter()
        function = getattr(self.names.nvmlLib, symbol, None)
        code = int(Code.FUNCTION_NOT_FOUND) if function is None else int(function(*args))
        self._observe(symbol, perf_counter() - started, code or None)
        return code

    def has(self, name: str) -> bool:
        """Whether pynvml and the driver both know a call whose name is the symbol's."""
        return hasattr(self.names, name) and hasattr(self.names.nvmlLib, name)
