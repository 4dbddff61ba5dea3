"""Recap: what a command did, printed in Ansible's format, or as one JSON document. Text only."""

import io
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, TextIO

from gpushare_node.reporting.log import escape
from gpushare_node.reporting.outcome import Status, StepResult

_COLOURS = {Status.OK: "32", Status.CHANGED: "33", Status.FAILED: "31", Status.SKIPPED: "36"}


class Printer:
    """Prints each step at once, and the recap at the end. With `as_json`, prints only one document at the end."""

    def __init__(self, out: TextIO, *, as_json: bool = False, with_diff: bool = False) -> None:
        self._out = out
        self._as_json = as_json
        self._with_diff = with_diff
        self._is_coloured = not as_json and out.isatty() and not os.environ.get("NO_COLOR")
        self._results: list[StepResult] = []

    @property
    def results(self) -> tuple[StepResult, ...]:
        """The steps so far."""
        return tuple(self._results)

    def step(self, result: StepResult) -> None:
        """Record and print a step."""
        self._results.append(result)
        if self._as_json:
            return
        detail = f": {result.detail}" if result.detail else ""
        self._say(f"{result.status.value:<8}{escape(result.target):<7} {escape(result.step + detail)}", result.status)
        if self._with_diff and result.before != result.after:
            from difflib import ndiff  # noqa: PLC0415 - needed only with --diff

            for line in ndiff(result.before, result.after):
                if not line.startswith("?"):
                    self._say(f"        {escape(line)}", _DIFF.get(line[0]))

    def end(self, host: str, command: str, facts: Mapping[str, Any]) -> None:
        """Print the recap. `facts` are for the JSON document; `message` among them is printed as text too."""
        counts = Counter(result.status for result in self._results)
        recap = {status.value: counts[status] for status in Status}
        if self._as_json:
            results = [_as_dict(one) for one in self._results]
            document = {"command": command, "host": host, **facts, "recap": recap, "results": results}
            self._out.write(json.dumps(document, indent=1) + "\n")
        else:
            worst = Status.FAILED if counts[Status.FAILED] else Status.CHANGED if counts[Status.CHANGED] else Status.OK
            numbers = " ".join(f"{name}={count}" for name, count in recap.items())
            self._say(f"{escape(host)} : {numbers}", worst)
            if facts.get("message"):
                self._say(escape(str(facts["message"])), None)
        self._out.flush()

    def _say(self, text: str, status: Status | None) -> None:
        coloured = f"\x1b[{_COLOURS[status]}m{text}\x1b[0m" if self._is_coloured and status is not None else text
        self._out.write(f"{coloured}\n")
        self._out.flush()


_DIFF = {"-": Status.FAILED, "+": Status.OK}


def _as_dict(result: StepResult) -> dict[str, Any]:
    return {
        "step": result.step,
        "target": result.target,
        "status": result.status.value,
        "detail": result.detail,
        "before": list(result.before),
        "after": list(result.after),
    }


def to_stdout(*, as_json: bool, with_diff: bool = False) -> Printer:
    """Return a printer to standard output; characters that its encoding lacks are escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Printer(sys.stdout, as_json=as_json, with_diff=with_diff)
