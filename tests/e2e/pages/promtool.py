"""promtool, with the rules of a bundle and made-up series."""

import json
import subprocess
from pathlib import Path
from typing import Any

from gpushare.core import emit
from gpushare.render.monitoring.alerts import groups


def evaluate(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What promtool says of the rules with these tests."""
    (folder / "rules.yaml").write_text(emit.yaml_text(groups()))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": tests[0]["interval"], "tests": tests}
    (folder / "tests.yaml").write_text(json.dumps(document))
    command = ["promtool", "test", "rules", "tests.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
