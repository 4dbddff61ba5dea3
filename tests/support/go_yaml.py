"""How Go reads YAML: Helm itself is asked, by a chart of one template that turns files into JSON."""

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import helm

TEMPLATE = """\
{{- range $path, $text := .Files.Glob "documents/*" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ base $path }}
data:
  json: {{ toString $text | fromYaml | toJson | b64enc }}
{{- end }}
"""


def read(documents: Mapping[str, str], folder: Path, major: int = 4) -> dict[str, Any]:
    """What Helm's reader makes of each document, which must be a mapping; keyed as given. `folder` must be empty."""
    (folder / "templates").mkdir(parents=True)
    (folder / "documents").mkdir()
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: reader\nversion: 0.1.0\n")
    (folder / "templates" / "reader.yaml").write_text(TEMPLATE)
    for number, text in enumerate(documents.values()):
        (folder / "documents" / f"d{number:05}").write_bytes(text.encode())
    command = [str(helm.helm(major)), "template", "reader", str(folder)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    encoded = [line.partition("json: ")[2] for line in printed.splitlines() if line.startswith("  json: ")]
    values = [json.loads(base64.b64decode(text)) for text in encoded]
    return dict(zip(documents, values, strict=True))
