"""What hostile inputs of 1 MiB cost `import`: CPU seconds and memory of a process each.

`python -m tests.bench.hostile_imports --each` prints every kind; without `--each` the costliest.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.history import Line, tell
from tests.bench.intents import many_pools

SIZE = 1 << 20
_NODE = (
    '{{"kind": "Node", "metadata": {{"name": "n{0}", "labels": {{"nvidia.com/gpu.product": "{1}", '
    '"nvidia.com/gpu.count": "{2}"{3}}}}}}},'
)
_CONFIG = "version: v1\\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\\n"
_MAP = "kind: ConfigMap\nmetadata: {name: c}\ndata:\n"


def _rows(head: str, row: Callable[[int], str], tail: str = "") -> str:
    """As many rows as fit into 1 MiB."""
    rows, left, number = [], SIZE - len(head) - len(tail), 0
    while (left := left - len(row(number))) >= 0:
        rows.append(row(number))
        number += 1
    return head + "".join(rows) + tail


def _nodes(product: str, count: str = "4", labels: str = "") -> str:
    text = _rows('{"kind": "List", "items": [', lambda n: _NODE.format(n, product, count, labels.replace("@", str(n))))
    return text[:-1] + "]}"


def inputs() -> dict[str, str]:
    """A text for each kind of input, by what it has too many of."""
    t4 = _NODE.format("", "Tesla-T4", "4", "")[:-1]
    return {
        "quotas of unknown resources": _rows(
            f"{t4}\n---\nkind: ResourceQuota\nmetadata: {{name: q, namespace: a}}\nspec:\n  hard:\n",
            lambda n: f"    requests.nvidia.com/g{n}: 1\n",
        ),
        "quotas without effect": _rows(
            f"{t4}\n---\nkind: ResourceQuota\nmetadata: {{name: q, namespace: a}}\nspec:\n  hard:\n",
            lambda n: f"    nvidia.com/g{n}: 1\n",
        ),
        "ResourceQuotas of namespaces": _rows(
            f'{{"kind": "List", "items": [{t4}',
            lambda n: (
                f',{{"kind": "ResourceQuota", "metadata": {{"namespace": "n{n}"}}, '
                '"spec": {"hard": {"requests.nvidia.com/gpu": 1}}}'
            ),
            "]}",
        ),
        "pools of a Pools file": _rows(
            "apiVersion: gpushare.dev/v1\nkind: Pools\npools:\n",
            lambda n: f"  p{n}: {{card: t4, gpusPerNode: 1, devices: [{{}}]}}\n",
        ),
        "broken pools of a Pools file": _rows(
            "apiVersion: gpushare.dev/v1\nkind: Pools\npools:\n", lambda n: f"  p{n}: {{card: x}}\n"
        ),
        "quotas of a Pools file": _rows(
            "apiVersion: gpushare.dev/v1\nkind: Pools\npools: {p: {card: t4, gpusPerNode: 1, devices: [{}]}}\nquotas:\n",
            lambda n: f"  n{n}: {{nvidia.com/gpu: 1}}\n",
        ),
        "configs of mig-parted": _rows(
            "version: v1\nmig-configs:\n", lambda n: f"  c{n}: [{{devices: all, mig-enabled: false}}]\n"
        ),
        "broken configs of mig-parted": _rows("version: v1\nmig-configs:\n", lambda n: f"  c{n}: [{{device: all}}]\n"),
        "rows of a mig-parted config": _rows(
            "version: v1\nmig-configs:\n  a:\n", lambda n: f"  - {{devices: [{n % 1000}], mig-enabled: false}}\n"
        ),
        "broken rows of a mig-parted config": _rows(
            "version: v1\nmig-configs:\n  a:\n", lambda n: f"  - {{devices: [{n}], mig: 1}}\n"
        ),
        "Nodes, alike": _nodes("Tesla-T4"),
        "Nodes, each different": _nodes("Tesla-T4", labels=', "nvidia.com/x": "@"'),
        "Nodes of unknown cards": _nodes("Tesla-@-Of-No-Maker", labels=', "nvidia.com/x": "@"'),
        "Nodes without a count": _nodes("Tesla-T4", "x", ', "nvidia.com/x": "@"'),
        "Nodes with unknown configs": _nodes("Tesla-T4", labels=', "nvidia.com/device-plugin.config": "c@"'),
        "Nodes with unknown MIG configs": _nodes("NVIDIA-A100-SXM4-40GB", labels=', "nvidia.com/mig.config": "c@"'),
        "Nodes of cloud pools": _nodes("Tesla-T4", labels=', "agentpool": "p@"'),
        "Nodes of one name": re.sub(r'"name": "n\d+"', '"name": "n"', _nodes("Tesla-T4", labels=', "nvidia.com/x": "@"')),
        "configs of a ConfigMap": _rows(_MAP, lambda n: f'  c{n}: "{_CONFIG}#{n}"\n'),
        "configs of a ConfigMap, alike": _rows(_MAP, lambda n: f'  c{n}: "{_CONFIG}"\n'),
        "configs of the values, alike": _rows("config:\n  default: c1\n  map:\n", lambda n: f'    c{n}: "{_CONFIG}"\n')
        + f"\n---\n{t4}\n",
        "configs that are no text": _rows(_MAP, lambda n: f"  c{n}: {{sharing: 1}}\n"),
        "unknown fields of a config": _rows("version: v1\nsharing: {}\n", lambda n: f"field{n}: 1\n"),
        "unknown flags of a config": _rows("version: v1\nsharing: {}\nflags:\n", lambda n: f"  field{n}: 1\n"),
        "resources of a config": _rows(
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n",
            lambda n: f"    - {{name: nvidia.com/g{n}, replicas: 2}}\n",
        )
        + f"---\n{t4}\n",
        "broken resources of a config": _rows(
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n", lambda n: f"    - {{name: amd.com/g{n}, replicas: 2}}\n"
        ),
        "one resource, repeated": _rows(
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n", lambda n: f"    - {{name: gpu, replicas: {n + 2}}}\n"
        ),
        "documents": _rows("", lambda n: f"---\nkind: Node\nmetadata: {{name: n{n}}}\n"),
        "empty documents": _rows("", lambda n: "---\n"),
        "one label": f'kind: Node\nmetadata: {{name: n, labels: {{nvidia.com/gpu.product: "{"A" * SIZE}"}}}}\n',
        "labels of a Node": _rows(
            "kind: Node\nmetadata:\n  name: n\n  labels:\n"
            "    nvidia.com/gpu.product: Tesla-T4\n    nvidia.com/gpu.count: '1'\n",
            lambda n: f"    nvidia.com/mig-{n}g.1gb.count: '1'\n",
        ),
        "taints of a Node": _rows(
            f"kind: Node\nmetadata: {t4[t4.index('{', 2) : -1]}\nspec:\n  taints:\n",
            lambda n: f"  - {{key: k{n}, effect: NoSchedule}}\n",
        ),
        "a deep document": "[" * SIZE,
        "braces of a config": "kind: ConfigMap\ndata:\n  sharing: |\n    sharing: " + "[" * SIZE + "\n",
        "values of Helm": _rows("devicePlugin: {}\nmig: {}\n", lambda n: f"v{n}: {{a: 1}}\n"),
        "an intent": many_pools(2000, nodes=20)[:SIZE],
        "strategies to fall back on": _rows("config:\n  name: c\n  fallbackStrategies:\n", lambda n: "  - x\n"),
        "nested lists": '{"kind": "List", "items": [' * 30000,
    }


def measured(text: str, folder: Path) -> tuple[float, float]:
    """CPU seconds and peak MiB of `gpushare import` of the text, which may fail but not crash."""
    path = folder / "input.yaml"
    path.write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "gpushare", "import", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1) or b"Traceback" in said:
        raise AssertionError(said.decode()[-2000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def lines() -> Iterator[Line]:
    """The costliest, against Nodes that are alike."""
    with tempfile.TemporaryDirectory() as name:
        costs = {title: measured(text, Path(name)) for title, text in inputs().items()}
    plain = costs["Nodes, alike"][0]
    worst = max(costs, key=lambda title: costs[title][0])
    seconds, memory = costs[worst][0], max(mib for _, mib in costs.values())
    yield Line(
        f"hostile inputs of import, {len(costs)} kinds of 1 MiB: at most {seconds:.2f} s of CPU ({worst}), "
        f"Nodes that are alike {plain:.2f} s: ratio {seconds / plain:.1f}; at most {memory:.0f} MiB",
        {"import.hostile": seconds / plain},
    )


if __name__ == "__main__":
    if "--each" in sys.argv:
        with tempfile.TemporaryDirectory() as name:
            for title, text in inputs().items():
                seconds, memory = measured(text, Path(name))
                print(f"{title:40} {len(text):8}  {seconds:.2f} s {memory:4.0f} MiB", flush=True)
    else:
        tell(lines())
