"""Any bytes give a Source, in little time and memory: never a traceback."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.reading import schema, source
from tests.support import scale
from tests.support.waiting import PATIENCE

MIB = 1 << 20
MEASURE = """
import json, pathlib, re, sys, time
from gpushare.reading import schema, source
data = sys.stdin.buffer.read()
start = time.process_time()
read = source.read(data, "intent.yaml")
findings = list(read.findings) or [read.locate(finding) for finding in schema.check(read)]
lines = [read.line(finding.span.line) for finding in findings]
seconds = time.process_time() - start
# Not getrusage: its peak is inherited from the process that started this one.
peak_kib = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
print(json.dumps({"codes": [finding.code for finding in findings], "seconds": seconds, "mib": peak_kib / 1024,
                  "told": sum(len(finding.message) for finding in findings)}))
"""


def fill(unit: str | bytes, size: int = MIB) -> bytes:
    raw = unit if isinstance(unit, bytes) else unit.encode()
    return (raw * (size // len(raw) + 1))[:size]


LAUGHS = b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 30))
SPEC = b"apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: c}\nspec:\n  pools:\n"
POOL = "    p{}: {{card: t4, nodes: {{names: [a]}}, gpusPerNode: {}, sharing: {{mode: exclusive}}}}\n"

HONEST_POOL = """\
    pool-{0}:
      card: a100-sxm4-40gb
      nodes: {{matchLabels: {{node.example.org/flavour: gpu-a100-{0}}}}}
      gpusPerNode: 8
      sharing: {{mode: time-slicing, replicas: 4}}
      enforcement: {{action: evict, grace: 30s}}
"""

RIGHT_POOLS = "".join(POOL.format(number, 4) for number in range(12_000)).encode()

HOSTILE = {
    "brackets in brackets": (fill("["), "GS008"),
    "mappings in mappings": (fill("{a: "), "GS008"),
    "lists in lists": (fill("- "), "GS008"),
    "keys in keys": (fill("? "), "GS008"),
    "a deep block": ("\n".join(" " * depth + "a:" for depth in range(1400)).encode(), "GS008"),
    "half a million values": (b"[" + fill("a,") + b"]", "GS008"),
    "a list of mappings": (b"[" + fill("{},") + b"]", "GS008"),
    "the same key": (fill("a: 1\n"), "GS004"),
    "words in doubt": (fill("- no\n"), "GS005"),
    "tags": (fill("- !a b\n"), "GS010"),
    "tag directives": (b"".join(b"%%TAG !t%d! tag:x,1:\n" % number for number in range(45_000)) + b"--- a\n", "GS010"),
    "merge keys": (fill("<<: {}\n"), "GS009"),
    "numbers as keys": (b"".join(b"%d: 1\n" % number for number in range(130_000))[:MIB], "GS010"),
    "a billion laughs": (LAUGHS, "GS007"),
    "a long text a thousand times": (b"a: &a " + fill("x") + b"\nb: [" + b"*a," * 1000 + b"]", "GS007"),
    "aliases": (b"a: &a x\nb: [" + fill("*a,") + b"]", "GS007"),
    "a million digits": (b"a: " + fill("9"), "GS005"),
    "documents": (fill("---\n"), "GS006"),
    "a million line ends": (fill("\n") + b"a: @", "GS003"),
    "a line of a million characters": (b"a: {b: " + fill("x ") + b", c: no}", "GS005"),
    "quotes": (fill('"'), "GS003"),
    "NUL": (fill("\0"), "GS001"),
    "not UTF-8": (fill(b"\xff"), "GS001"),
    "ten mebibytes": (fill("a", 10 * MIB), "GS002"),
    "four mebibytes of keys": (fill("a:\n", 4 * MIB), "GS004"),
    "four mebibytes of line ends": (fill("\n", 4 * MIB - 8) + b"a: @", "GS003"),
    "unknown keys": (b"".join(b"k%d: 1\n" % number for number in range(110_000))[:MIB], "GS102"),
    "a very long unknown key": (b"? " + fill("x", 100_000) + b"\n: 1", "GS102"),
    "pools that are all wrong": (SPEC + "".join(POOL.format(number, 99) for number in range(12_000)).encode(), "GS106"),
    "one wrong pool among thousands": (SPEC + RIGHT_POOLS + b"    p: 1\n", "GS103"),
    "names of mixed types": (SPEC + b"    p: {nodes: {names: [" + b"{},1,a,[]," * 20_000 + b"]}}", "GS107"),
}


def measure(data: bytes) -> dict[str, Any]:
    """What reading and judging it costs a program of its own."""
    run = subprocess.run([sys.executable, "-c", MEASURE], input=data, capture_output=True, check=False, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr.decode()
    measured: dict[str, Any] = json.loads(run.stdout)
    return measured


@pytest.fixture(scope="module")
def plain_seconds() -> float:
    """CPU time of a right text of half a mebibyte, in as many pools as an intent may have: what others are compared with."""
    data = SPEC + "".join(HONEST_POOL.format(number) for number in range(2500)).encode()
    assert MIB // 2 < len(data) < MIB * 5 // 8
    measured = measure(data)
    assert measured["codes"] == []
    return float(measured["seconds"])


@pytest.mark.parametrize("name", scale.part(list(HOSTILE), 16))
def test_hostile_text_costs_little(name: str, plain_seconds: float) -> None:
    data, code = HOSTILE[name]
    measured = measure(data)
    assert code in measured["codes"]
    assert len(measured["codes"]) <= 102
    assert measured["seconds"] < 10 * plain_seconds
    assert measured["mib"] < 200
    assert measured["told"] < 50_000


def nothing_is_raised(data: bytes) -> None:
    read = source.read(data, "intent.yaml")
    assert all(finding.span for finding in read.findings)
    if not read.findings:
        assert all(read.locate(finding).span for finding in schema.check(read))


@settings(max_examples=400)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing(data: bytes) -> None:
    nothing_is_raised(data)


SIGNS = [*"ab01:?-[]{},&*!|>'\"%@`# \n\t\r.~=<", "- ", ": ", "\n  ", "&a ", "*a", "<<: ", "---\n", "é", "😀"]


@settings(max_examples=scale.examples(800))
@given(st.lists(st.sampled_from(SIGNS)).map("".join))
def test_arbitrary_arrangements_of_yaml_signs_raise_nothing(text: str) -> None:
    nothing_is_raised(text.encode())


def test_last_finding_states_how_many_are_not_shown() -> None:
    found = source.read(b"- no\n" * 350, "intent.yaml").findings
    assert len(found) == source.MAX_FINDINGS + 1
    assert found[-1].message == "250 more findings are not shown"
