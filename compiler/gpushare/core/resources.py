"""Where the data files are. The only module that knows: cards, upstream facts, the chart, templates, schemas, finding texts.

An installed package carries them inside itself; in a clone and in an editable install they stand at the top of the
repository, two folders above. Everything else asks here and never builds such a path.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_REPOSITORY = _PACKAGE.parent.parent


def _folder(name: str) -> Path:
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _REPOSITORY / name


def cards() -> Path:
    """The folder of card files, one `<id>.yaml` each."""
    return _folder("profiles") / "cards"


def upstream() -> Path:
    """The folder of facts about upstream charts: value paths, images, releases."""
    return _folder("profiles") / "upstream"


def facts() -> Path:
    """The table of what the files in both say."""
    return _folder("profiles") / "facts.jsonl"


def chart() -> Path:
    """The static Helm chart that every bundle copies."""
    return _folder("charts") / "gpushare"


def templates() -> Path:
    """The folder of jinja2 templates of text documents."""
    return _folder("templates")


def schema(name: str) -> Path:
    """A JSON Schema by name, such as `intent.v1`."""
    return _PACKAGE / "schemas" / f"{name}.json"


def findings() -> Path:
    """The folder of finding texts, one `<code>.md` each: meaning, a bad and a good example."""
    return _PACKAGE / "findings"
