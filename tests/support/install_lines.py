"""The commands that our texts tell people to install with: found by their form, wherever a person may read one."""

import re

from tests.support.paths import ROOT

_READ = ("*.md", "docs", "examples/*.md", "examples/*.sh", "compiler", "node-runtime", "charts", "profiles", "templates", ".ci")
_SUFFIXES = {".css", ".html", ".j2", ".json", ".md", ".py", ".sh", ".tpl", ".txt", ".yaml", ".yml"}
_LINE = re.compile(r"""(?:[\w./-]+/)?\b(?:pip3?|pipx|uv(?: pip| tool)?) install(?: +(?:"[^"\n]*"|[^\s"'`&|;)]+))+""")


def install_lines() -> dict[str, str]:
    """Each line, such as `pip install .`, with a file that has it."""
    roots = [path for pattern in _READ for path in sorted(ROOT.glob(pattern))]
    files = [file for root in roots for file in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.suffix in _SUFFIXES}
    return {line: str(file.relative_to(ROOT)) for file, text in texts.items() for line in _LINE.findall(text)}


def projects(line: str) -> set[str]:
    """The projects that a line takes from a package index, by their normalized names."""
    words = line.partition(" install ")[2].replace('"', "").split()
    names = [re.split(r"[\[=<>!~@;]", word)[0] for word in words if not word.startswith(("-", ".", "$")) and "/" not in word]
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}
