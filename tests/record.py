"""Write what every command prints into a folder, one file for each call, and compare two such folders with `diff -r`.

    .venv/bin/python -m tests.record before      with the old code
    .venv/bin/python -m tests.record after       with the new
    diff -r before after                         what the change does to users

For a refactoring: what stays equal here, users do not notice. All calls run in this process, in a folder with the examples, at
one time of the clock, against the doubles of the API server and of Prometheus. A file has the call, its exit code, stdout and
stderr. A command that the program does not have leaves no file. Inputs are the examples, the examples of the findings' texts,
and the inputs of some tests: what changes there changes here too.
"""

import gc
import io
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from gpushare import cli, pipeline
from gpushare.cli import commands
from gpushare.core import emit, resources
from gpushare.facts.catalog import cards
from tests.compiler.cluster.importing.test_accounting import CLUSTERS
from tests.compiler.cluster.live import (
    dra_cluster,
    test_dra_drift,
    test_drift,
    test_live_import,
    test_observing,
    test_vgpu,
)
from tests.compiler.cluster.live import test_amd as live_amd
from tests.compiler.cluster.live.clusters import INTENT, SHARED, LiveCluster, lively
from tests.compiler.compare import test_amd, test_dra, test_invariant
from tests.compiler.report import test_comparison_page
from tests.compiler.study.advice import test_prometheus_history
from tests.compiler.study.measured import prometheus_double, test_usage_report
from tests.docs import test_live
from tests.support.fake_api import store
from tests.support.fake_api.server import ApiServer
from tests.support.paths import ROOT
from tests.support.usage_series import Shape, csv_text, history

EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/intent.yaml"))
SCHEMAS = ROOT / "compiler/gpushare/schemas"
WORKLOADS = ("notebooks", "packing")
NOW = 1_795_867_200
"""28 November 2026, 12:00 UTC."""
_LINE = "\n"
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_COUNTERS = re.compile(r"(?<=resourceVersion: )\d+")


class Recorder:
    """Runs the program and writes what it says. The current folder is that of the inputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "COLUMNS": "120",
            "HOME": "/nowhere",
            "KUBECONFIG": "kubeconfig",
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "PATH": os.environ["PATH"],
            "SOURCE_DATE_EPOCH": str(NOW),
        }

    def call(self, place: str, *arguments: object, stdin: str = "") -> None:
        """Run one call, and write it into the file `place`."""
        words = [str(argument) for argument in arguments]
        if words[0] not in commands.COMMANDS and not words[0].startswith("-"):
            return
        streams = {
            "stdin": io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"),
            "stdout": io.TextIOWrapper(io.BytesIO(), encoding="utf-8"),
            "stderr": io.TextIOWrapper(io.BytesIO(), encoding="utf-8"),
        }
        with (
            mock.patch.object(sys, "argv", ["gpushare", *words]),
            mock.patch.object(sys, "stdin", streams["stdin"]),
            mock.patch.object(sys, "stdout", streams["stdout"]),
            mock.patch.object(sys, "stderr", streams["stderr"]),
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch.object(time, "time", return_value=float(NOW)),
        ):
            code = cli.call()
            printed = {name: _text(streams[name]) for name in ("stdout", "stderr")}
        gc.collect(0)  # the program turns it off
        said = "".join(f"--- {name}\n{text.removesuffix(_LINE)}\n" for name, text in printed.items() if text)
        self.write(place, f"$ gpushare {' '.join(words)}\nexit {code}\n{said}")

    def write(self, place: str, text: str) -> None:
        """Write a file, without what no two runs have in common."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_COUNTERS.sub("N", _PORT.sub("127.0.0.1:PORT", text)), encoding="utf-8")

    def formats(self, place: str, *arguments: object, formats: tuple[str, ...] = ("text", "json", "html")) -> None:
        """Run one call in each format."""
        for one in formats:
            self.call(f"{place}.{one}", *arguments, "--format", one)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def main() -> int:
    """Record into the folder that the command line names; 2 if it is not empty."""
    if len(sys.argv) != 2 or (Path(sys.argv[1]).exists() and list(Path(sys.argv[1]).iterdir())):
        print("python -m tests.record FOLDER, which is new or empty", file=sys.stderr)
        return 2
    recorder = Recorder(Path(sys.argv[1]).absolute())
    with tempfile.TemporaryDirectory() as work:
        for name in EXAMPLES:
            shutil.copytree(ROOT / "examples" / name, Path(work, "examples", name), ignore=shutil.ignore_patterns("bundle"))
        shutil.copytree(ROOT / "examples/workloads", Path(work, "workloads"))
        before = Path.cwd()
        os.chdir(work)
        try:
            # The examples are compiled a hundred times each: once is enough.
            with mock.patch.object(pipeline, "compile_intent", _once(pipeline.compile_intent)):
                _record(recorder)
        finally:
            os.chdir(before)
    return 0


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called only once with equal arguments."""
    known: dict[str, Any] = {}

    def called(*arguments: Any) -> Any:
        key = repr(arguments)
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    return called


def _record(recorder: Recorder) -> None:
    """Every part, with its time."""
    for part in (_alone, _bundles, _findings, _offline, _plans, _imports, _series, _clusters):
        begun = time.process_time()
        part(recorder)
        gc.collect()
        print(f"{part.__name__[1:]}: {time.process_time() - begun:.0f} s", file=sys.stderr)


def _alone(recorder: Recorder) -> None:
    """What needs no intent."""
    recorder.call("help/all", "--help")
    for name in commands.COMMANDS:
        recorder.call(f"help/{name}", name, "--help")
    for schema in sorted(path.name.partition(".")[0] for path in SCHEMAS.glob("*.json")):
        recorder.call(f"schema/{schema}", "schema", *([] if schema == "intent" else [schema]))
    recorder.formats("cards/all", "cards", formats=("text", "json"))
    for card in cards.ids():
        recorder.formats(f"cards/{card}", "cards", card, formats=("text", "json"))
    recorder.call("explain/all", "explain")
    for code in sorted(path.stem for path in resources.findings().glob("GS*.md")):
        recorder.call(f"explain/{code}", "explain", code)
    for reason in sorted(set(re.findall(r"^\| (\w+) \|", (ROOT / "docs/reasons.md").read_text(), re.MULTILINE))):
        recorder.call(f"explain/{reason}", "explain", reason)
    recorder.call("explain/unknown", "explain", "GPUBuzy")
    recorder.call("rbac/plain", "rbac")
    recorder.call(
        "rbac/all", "rbac", "--helm-values", "--metrics", "--amd-namespace", "kube-amd-gpu", "--import", "gpu-operator"
    )
    for shell in ("bash", "zsh", "fish"):
        recorder.call(f"completion/{shell}", "completion", shell)
    for mode in ("exclusive", "time-slicing", "mps", "mig", "partition", "vgpu"):
        recorder.call(f"init/{mode}", "init", "--mode", mode)
    two = ("--card", "t4", "--card", "l4", "--card", "a100-sxm4-80gb", "--card", "mi300x")
    Path("card-prices.yaml").write_text("t4: 0.35 EUR/h\nl4: 0.60 EUR/h\na100-sxm4-80gb: 2.10 EUR/h\nmi300x: 3 EUR/h\n")
    sizes: dict[str, tuple[str, ...]] = {
        "one": ("--card", "t4", "--memory", "4Gi", "--users", "40"),
        "nodes": ("--card", "h100-sxm5-80gb", "--gpus-per-node", "8", "--memory", "9Gi", "--nodes", "2"),
        "needs": ("--card", "a100-sxm4-80gb", "--need", "40x8Gi", "--need", "3x35Gi"),
        "cards": (*two, "--memory", "4Gi", "--users", "40"),
        "prices": (*two, "--memory", "4Gi", "--users", "40", "--prices", "card-prices.yaml"),
        "isolated": ("--card", "a100-sxm4-40gb", "--memory", "4Gi", "--users", "9", "--isolation", "memory"),
        "too-large": ("--card", "t4", "--memory", "40Gi", "--users", "4"),
        "workload": ("--card", "a100-sxm4-40gb", "--workload", "workloads/packing.yaml"),
    }
    for name, words in sizes.items():
        recorder.formats(f"size/{name}", "size", *words, formats=("text", "json"))
        recorder.call(f"size/{name}.intent", "size", *words, "--intent")


def _bundles(recorder: Recorder) -> None:
    """The bundles, fresh; and of the examples one after the other in one folder, so that each has the former ones' lock."""
    for name in EXAMPLES:
        recorder.call(f"compile/{name}", "compile", f"examples/{name}/intent.yaml", "-o", f"bundles/{name}")
        for path in sorted(Path("bundles", name).rglob("*")):
            if path.is_file():
                recorder.write(str(path), path.read_text())
    for name in (*EXAMPLES, *reversed(EXAMPLES)):
        recorder.call(f"successive/{name}", "compile", f"examples/{name}/intent.yaml", "-o", "successive")
        recorder.write(f"successive/{name}.lock", Path("successive/gpushare.lock.yaml").read_text())
    for path in sorted(Path("successive").rglob("*")):
        if path.is_file():
            recorder.write(f"successive/bundle/{path.relative_to('successive')}", path.read_text())


def _findings(recorder: Recorder) -> None:
    """Findings, of the bad and good examples of their texts."""
    for text in sorted(resources.findings().glob("GS*.md")):
        for heading in ("Bad", "Good"):
            section = text.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
            for kind, block in re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)[:1]:
                data = block.encode().decode("unicode_escape").encode("latin-1") if kind == "bytes" else block.encode()
                Path("input.yaml").write_bytes(data)
                if "GS850" <= text.stem < "GS880":
                    wanted = ("--backend", "dra") if text.stem == "GS875" else ()
                    recorder.call(f"import/{text.stem}-{heading}", "import", "input.yaml", *wanted)
                    continue
                for one in ("text", "json", "github", "sarif") if heading == "Bad" else ("text", "json"):
                    recorder.call(f"check/{text.stem}-{heading}.{one}", "check", "input.yaml", "--format", one)


def _offline(recorder: Recorder) -> None:
    """What needs an intent alone."""
    for name in EXAMPLES:
        intent = f"examples/{name}/intent.yaml"
        recorder.formats(f"check/{name}", "check", intent, formats=("text", "json"))
        recorder.call(f"check/{name}.strict", "check", intent, "--strict")
        recorder.formats(f"show/{name}", "show", intent)
        recorder.formats(f"images/{name}", "images", intent, formats=("text", "json", "skopeo", "crane"))
        recorder.call(
            f"images/{name}.to", "images", intent, "--to", "reg.example.org/mirror", "--charts-to", "oci://reg.example.org/c"
        )
        recorder.call(f"claims/{name}", "claims", intent, "team")
        for workload in WORKLOADS:
            words = (intent, "--workload", f"workloads/{workload}.yaml")
            recorder.formats(f"simulate/{name}-{workload}", "simulate", *words, formats=("text", "json"))
    compared = ("examples/02-t4-notebooks/intent.yaml", "--workload", "workloads/notebooks.yaml")
    prices = ("--compare", "examples/03-mps-inference/intent.yaml", "--prices", "card-prices.yaml")
    recorder.formats("simulate/compared", "simulate", *compared, *prices)


def _plans(recorder: Recorder) -> None:
    """Differences of every two examples, of bundles, and of single settings."""
    every = [(old, new) for old in EXAMPLES for new in EXAMPLES]
    for number, (old, new) in enumerate(every):
        formats = ("text", "json", *(("markdown",) if number % 3 == 0 else ()), *(("html",) if number % 24 == 1 else ()))
        words = [f"examples/{name}/intent.yaml" for name in (old, new)]
        recorder.formats(f"plan/{old}/{new}", "plan", "--exit-code", *words, formats=formats)
    for old, new in itertools.pairwise(EXAMPLES):
        recorder.formats(f"plan/{old}/bundle", "plan", f"bundles/{old}", f"bundles/{new}", formats=("text", "json"))
        recorder.call(f"plan/{old}/next", "plan", f"bundles/{old}", f"examples/{new}/intent.yaml")
    for kind, module in (("intent", test_invariant), ("amd", test_amd), ("dra", test_dra)):
        _single_changes(recorder, kind, module)
    first = Path("examples/01-heterogeneous/intent.yaml").read_text()
    for name, (before, after) in test_comparison_page.CHANGES.items():
        Path("new.yaml").write_text(
            first.replace(before, after).replace("{hpc: 8", "{full: 8" if name == "renamed" else "{hpc: 8")
        )
        words = ["examples/01-heterogeneous/intent.yaml", "new.yaml"]
        recorder.formats(f"plan/changes/first-{name}", "plan", *words, formats=("text", "json", "markdown", "html"))


def _single_changes(recorder: Recorder, kind: str, module: Any) -> None:
    Path("old.yaml").write_text(module.INTENT)
    for number, (path, value, *_) in enumerate(module.CHANGES):
        Path("new.yaml").write_text(emit.yaml_text(module.changed(path, value), ""))
        place = f"plan/changes/{kind}-{number:03}-{path.replace('/', '.')}"
        recorder.formats(place, "plan", "old.yaml", "new.yaml", formats=("text", "json"))
        recorder.call(f"{place}.back", "plan", "new.yaml", "old.yaml")


def _imports(recorder: Recorder) -> None:
    """Intents of other people's objects, and of bundles."""
    for name, documents in CLUSTERS.items():
        Path("input.yaml").write_text("---\n".join(emit.yaml_text(one, "") for one in documents))
        recorder.call(f"import/objects-{name}", "import", "input.yaml")
        recorder.call(f"import/objects-{name}.json", "import", "input.yaml", "--format", "json")
        for stack in ("gpu-operator", "device-plugin"):
            recorder.call(f"import/objects-{name}.{stack}", "import", "input.yaml", "--stack", stack)
        recorder.call(f"import/objects-{name}.dra", "import", "input.yaml", "--backend", "dra")
    for name in EXAMPLES:
        files = [path for path in sorted(Path("bundles", name).rglob("*.yaml")) if "templates" not in path.parts]
        recorder.call(f"import/bundle-{name}", "import", *files)
        recorder.call(f"import/folder-{name}", "import", f"bundles/{name}")


def _series(recorder: Recorder) -> None:
    """What reads Prometheus, or a file of measured use."""
    series = history(
        [("atlas", 12, Shape(base_mib=1500, burst_mib=500)), ("cms", 4, Shape(leak_mib=20))], days=1, step_seconds=600
    )
    Path("use.csv").write_text(csv_text(series))
    advised = ROOT.joinpath("examples/02-t4-notebooks/intent.yaml").read_text()
    Path("advised.yaml").write_text(advised)
    recorder.formats("advise/csv", "advise", "advised.yaml", "--usage", "use.csv")
    recorder.formats("advise/prices", "advise", "advised.yaml", "--usage", "use.csv", "--prices", "card-prices.yaml")
    with prometheus_double.serving() as double:
        labels = {"namespace": "atlas", "resource": test_usage_report.EXPORTED}
        numbers: Mapping[str, prometheus_double.Samples] = {
            test_usage_report.BY_NAMESPACE: [(labels, 24)],
            test_usage_report.BY_POOL: [({**labels, "pool": "notebooks"}, 24)],
            test_usage_report.MEMORY: [({"namespace": "atlas", "pool": "notebooks"}, 3)],
            test_usage_report.OFFERED: [({"pool": "notebooks", "resource": test_usage_report.EXPORTED}, 96)],
            "count_over_time(group(": [({}, 9)],
        }
        double.values = prometheus_double.usual(numbers)
        words = ("usage", "advised.yaml", "--prometheus", double.url, "--prices", "card-prices.yaml")
        recorder.formats("usage/month", *words, "--month", "2026-02", formats=("text", "json", "csv"))
        days = ("--from", "2026-02-01", "--to", "2026-02-03")
        recorder.formats("usage/days", *words, *days, formats=("text", "json", "csv"))
        double.values = test_prometheus_history.usual({})
        recorder.formats("advise/prometheus", "advise", "advised.yaml", "--usage", double.url, "--min-containers", 1)


@contextmanager
def _cluster(make: Callable[[ApiServer], LiveCluster]) -> Iterator[LiveCluster]:
    """A cluster that the calls reach, with its bundle in the folder `live`."""
    shutil.rmtree("live", ignore_errors=True)
    with (
        mock.patch.object(store, "now_text", return_value="2026-11-28T11:00:00Z"),
        mock.patch.object(uuid, "uuid4", return_value="11111111-2222-3333-4444-555555555555"),
        ApiServer(token="secret") as api,
    ):
        found = make(api)
        api.kubeconfig(Path("kubeconfig"))
        found.write(Path("live"))
        yield found


def _settled(text: str, nodes: Mapping[str, str]) -> Callable[[ApiServer], LiveCluster]:
    """A cluster with nodes as their pools want them."""

    def make(api: ApiServer) -> LiveCluster:
        found = LiveCluster(api, text)
        for node, pool in nodes.items():
            found.add_node(node, pool)
        found.add_release()
        return found

    return make


_NODES = {"t4-1": "notebooks", "t4-2": "notebooks", "a100-1": "training"}
_SETTLED = _settled(INTENT, _NODES)
_AMD = _settled(live_amd.AMD, {**_NODES, "mi-1": "parts", "mi-2": "parts"})


def _waiting(api: ApiServer) -> LiveCluster:
    """DRA's cluster, where a claim waits for memory that others have."""
    found = dra_cluster.of_dra(api)
    for node, name in (("t4-1", "gpu-1"), ("t4-2", "gpu-0"), ("t4-2", "gpu-1")):
        dra_cluster.use(api, f"physics/{node}-{name}", node, name, "15Gi")
    dra_cluster.add_pod(api, "team", "waits")
    dra_cluster.add_claim(api, "team", "waits", memory="7680Mi")
    return found


def _observed(api: ApiServer) -> LiveCluster:
    found = LiveCluster(api, test_observing.OBSERVE)
    for name, labels in (("t4-1", {"example.org/gpu": "t4"}), ("t4-2", {"example.org/gpu": "t4"}), ("a100-1", {})):
        api.add_node(name, labels=labels, allocatable={"nvidia.com/gpu": 1})
        found.say(name, "Observing", "Nothing is changed here; enforce would change nothing.")
        would = test_observing.WOULD if name == "a100-1" else {"pool": "notebooks"}
        test_observing.tell(found, name, json.dumps(would))
    api.add_pod("train-0", namespace="physics", node="a100-1", limits={"nvidia.com/gpu": 1})
    found.add_release()
    return found


def _killed(api: ApiServer) -> LiveCluster:
    found = lively(api)
    api.add_event("Pod", "lab-0", "GPUProcessKilled", "used 4000 of 3724 MiB", namespace="team")
    api.add_pod("waits", namespace="team", limits={SHARED: 9}, phase="Pending")
    api.add_pod("asks", namespace="team", limits={"nvidia.com/gpu": 1}, phase="Pending")
    return found


def _example(name: str) -> Callable[[ApiServer], LiveCluster]:
    """An example, installed, with two nodes of each pool or those that it names, all but the last as the pool wants them."""
    text = Path("examples", name, "intent.yaml").read_text()

    def make(api: ApiServer) -> LiveCluster:
        found = LiveCluster(api, text)
        for pool, fields in yaml.safe_load(text)["spec"]["pools"].items():
            is_of_runtime = f"chart/files/policies/{pool}.yaml" in found.files
            names = fields["nodes"].get("names", [f"{pool}-1", f"{pool}-2"])
            for node in names[:2]:
                found.add_node(node, pool if is_of_runtime else "", labels=fields["nodes"].get("matchLabels", {}))
        found.add_release()
        return found

    return make


_CLUSTERS: Mapping[str, Callable[[ApiServer], LiveCluster]] = {
    "settled": _SETTLED,
    "killed": _killed,
    "dra": dra_cluster.of_dra,
    "waiting": _waiting,
    "amd": _AMD,
    "vgpu": test_vgpu.Machines,
    "observed": _observed,
    "page": test_live.cluster,
}


def _clusters(recorder: Recorder) -> None:
    """What reads a cluster."""
    for name, make in _CLUSTERS.items():
        with _cluster(make) as live:
            _asked(recorder, name, live)
    changes: list[tuple[str, Callable[[ApiServer], LiveCluster], list[Callable[[LiveCluster], object]]]] = [
        ("settled", _SETTLED, [change for _, change, _ in test_drift.CHANGES]),
        ("amd", _AMD, [_of_api(change) for change, *_ in live_amd.CHANGES]),
        ("dra", dra_cluster.of_dra, [_of_api(change) for change, *_ in test_dra_drift.EDITED]),
    ]
    for name, make, several in changes:
        for number, change in enumerate(several):
            with _cluster(make) as live:
                change(live)
                recorder.formats(f"drift/{name}-{number:02}", "drift", "live/bundle", formats=("text", "json"))
    for name, after in zip(EXAMPLES, (*EXAMPLES[1:], EXAMPLES[0]), strict=True):
        with _cluster(_example(name)):
            recorder.formats(f"status/{name}", "status", formats=("text", "json"))
            recorder.formats(f"drift/{name}", "drift", "live/bundle", formats=("text", "json"))
            recorder.formats(f"plan-live/{name}", "plan", "--live", f"examples/{after}/intent.yaml", formats=("text", "json"))
    with _cluster(_filled):
        recorder.call("import/live", "import", "--live", *test_live_import.OPERATOR)
    with _cluster(_SETTLED) as live:
        live.api.allows = lambda _, path: "/secrets" not in path and "/pods" not in path and "/configmaps" not in path
        recorder.call("status/forbidden", "status")
        recorder.call("drift/forbidden", "drift", "live/bundle")
        recorder.call("plan-live/forbidden", "plan", "--live", "examples/02-t4-notebooks/intent.yaml")


def _of_api(change: Callable[[ApiServer], object]) -> Callable[[LiveCluster], object]:
    return lambda live: change(live.api)


def _filled(api: ApiServer) -> LiveCluster:
    test_live_import.fill(api)
    return LiveCluster(api)


def _asked(recorder: Recorder, name: str, live: LiveCluster) -> None:
    """Every question to a cluster."""
    recorder.formats(f"status/{name}", "status", formats=("text", "json", "html"))
    recorder.call(f"status/{name}.wide", "status", "-o", "wide")
    recorder.formats(f"status/{name}.kills", "status", "--kills", formats=("text", "json"))
    recorder.formats(f"drift/{name}", "drift", "live/bundle", formats=("text", "json"))
    recorder.call(f"import/live-{name}", "import", "--live")
    for node in sorted(one["metadata"]["name"] for one in live.api.all("nodes")):
        recorder.call(f"explain/{name}/node-{node}", "explain", f"node/{node}")
    for pod in live.api.all("pods"):
        meta = pod["metadata"]
        where = meta["namespace"]
        recorder.call(f"explain/{name}/pod-{where}-{meta['name']}", "explain", f"pod/{meta['name']}", "-n", where)
    for claim in live.api.all("resourceclaims"):
        meta = claim["metadata"]
        where = meta["namespace"]
        recorder.call(f"explain/{name}/claim-{where}-{meta['name']}", "explain", f"claim/{meta['name']}", "-n", where)
    text = {"dra": dra_cluster.DRA, "waiting": dra_cluster.DRA, "amd": live_amd.AMD, "vgpu": test_vgpu.VGPU}.get(name, INTENT)
    for number, new in enumerate(
        (
            text,
            text.replace("replicas: 4", "replicas: 2"),
            text.partition("    training:")[0],
            text.replace("{notebooks: 6}", "{notebooks: 2}"),
        )
    ):
        Path("new.yaml").write_text(new)
        recorder.formats(f"plan-live/{name}-{number}", "plan", "--live", "new.yaml", formats=("text", "json"))


if __name__ == "__main__":
    sys.exit(main())
