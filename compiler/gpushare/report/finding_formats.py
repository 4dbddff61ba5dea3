"""Findings for programs: the Findings document, GitHub's workflow commands, SARIF 2.1.0. Pure: findings in, text out."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from gpushare import __version__
from gpushare.core import emit, resources
from gpushare.core.diagnostics import Accepted, Finding, is_error, pointer

_Json = dict[str, Any]

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def json_text(findings: Sequence[Finding], accepted: Sequence[Accepted] = (), files: Sequence[str] | None = None) -> str:
    """Return the document as text."""
    return emit.json_text(document(findings, accepted, files))


def document(findings: Sequence[Finding], accepted: Sequence[Accepted] = (), files: Sequence[str] | None = None) -> _Json:
    """Return the `Findings` document (schemas/findings.v1.json); of a compile with the bundle's `files`."""
    errors = sum(map(is_error, findings))
    found = {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Findings",
        "findings": [_entry(finding) for finding in findings],
        "errors": errors,
        "warnings": len(findings) - errors,
        "accepted": [_entry(one.finding) | {"reason": one.reason} for one in accepted],
    }
    return found | ({} if files is None else {"files": list(files)})


def _entry(finding: Finding) -> dict[str, Any]:
    at = finding.span
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message,
        "hint": "\n".join(finding.hints),
        "file": finding.file,
        "line": at.line if at else None,
        "column": at.column if at else None,
        "endLine": at.end_line if at else None,
        "endColumn": at.end_column if at else None,
        "path": pointer(finding.path),
    }


def github_text(findings: Sequence[Finding], _: Sequence[Accepted] = ()) -> str:
    """Return one workflow command per finding, which GitHub shows beside the line; none for those that the intent accepts."""
    return "".join(_workflow_command(finding) for finding in findings)


def _workflow_command(finding: Finding) -> str:
    at = finding.span
    properties: dict[str, str | int] = {"file": finding.file}
    if at:
        properties["line"] = at.line
        if at.line == at.end_line:  # GitHub rejects columns on an annotation of several lines
            properties["col"] = at.column
        properties["endLine"] = at.end_line
        if at.line == at.end_line:
            properties["endColumn"] = at.end_column
    properties["title"] = finding.code
    shown = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in properties.items())
    return f"::{finding.severity} {shown}::{_escaped(_message(finding))}\n"


def _escaped(text: str, also: str = "") -> str:
    """Return the text escaped for workflow commands: `%`, line ends, and in properties their separators as %XX."""
    for char in "%\r\n" + also:
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def _message(finding: Finding) -> str:
    return "\n".join([finding.message, *finding.hints])


def sarif_text(findings: Sequence[Finding], accepted: Sequence[Accepted] = ()) -> str:
    """Return a SARIF log with one run, with the rules that the findings name. Accepted warnings are suppressed results."""
    codes = _codes(findings, accepted)
    return _sarif_log(codes, list(_results(findings, accepted, codes)))


def sarif_of_fleet(clusters: Mapping[str, tuple[Sequence[Finding], Sequence[Accepted]]], failures: Sequence[str]) -> str:
    """Return a log with one run, as GitHub takes at most 20: every result once, with the clusters that have it.

    `failures`: why a cluster has no findings; notifications of the run.
    """
    codes = sorted({code for one in clusters.values() for code in _codes(*one)})
    results: dict[str, _Json] = {}
    for name, one in clusters.items():
        for result in _results(*one, codes):
            once = results.setdefault(json.dumps(result), result | {"properties": {"clusters": []}})
            once["properties"]["clusters"].append(name)
    return _sarif_log(codes, list(results.values()), failures)


def _codes(findings: Iterable[Finding], accepted: Iterable[Accepted]) -> list[str]:
    return sorted({finding.code for finding in (*findings, *(one.finding for one in accepted))})


def _results(findings: Iterable[Finding], accepted: Iterable[Accepted], codes: Sequence[str]) -> Iterator[_Json]:
    for finding in findings:
        yield _result(finding, codes.index(finding.code))
    for one in accepted:
        meant = {"kind": "inSource", "status": "accepted", "justification": one.reason}
        yield _result(one.finding, codes.index(one.finding.code)) | {"suppressions": [meant]}


def _sarif_log(codes: Sequence[str], results: list[_Json], failures: Sequence[str] = ()) -> str:
    driver = {
        "name": "gpushare",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code) for code in codes],
    }
    run: _Json = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    if failures:
        notifications = [{"level": "error", "message": {"text": failure}} for failure in failures]
        run["invocations"] = [{"executionSuccessful": False, "toolExecutionNotifications": notifications}]
    return emit.json_text({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(code: str) -> dict[str, Any]:
    text = resources.finding_text(code)
    return {
        "id": code,
        "shortDescription": {"text": text.title},
        "fullDescription": {"text": text.meaning or text.title},
        "help": {"text": text.markdown, "markdown": text.markdown},
        "defaultConfiguration": {"level": text.severity},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    at = finding.span
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
    if at:
        physical["region"] = {
            "startLine": at.line,
            "startColumn": at.column,
            "endLine": at.end_line,
            "endColumn": at.end_column,
        }
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": finding.severity.value,
        "message": {"text": _message(finding)},
        "locations": [{"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": pointer(finding.path)}]}],
    }


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(os.fsencode(path))  # a name need not be UTF-8
