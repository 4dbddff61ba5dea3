"""The only module with the paths of data files: cards, upstream facts, the chart, templates, schemas, finding texts.

An installed package contains them; in a clone and in an editable install they are at the top of the repository, two
folders above. All other modules call this one and never build such a path.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_REPOSITORY = _PACKAGE.parent.parent


def _folder(name: str) -> Path:
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _REPOSITORY / name


def cards(catalogue: str) -> Path:
    """Return the folder of a vendor's card files, one `<id>.yaml` each."""
    return _folder("profiles") / catalogue


def upstream() -> Path:
    """Return the folder of facts about upstream charts: value paths, images, releases."""
    return _folder("profiles") / "upstream"


def chart() -> Path:
    """Return the static Helm chart that every bundle copies."""
    return _folder("charts") / "gpushare"


def templates() -> Path:
    """Return the folder of jinja2 templates of text documents."""
    return _folder("templates")


def schema(name: str) -> Path:
    """Return a JSON Schema by name, such as `intent.v1`."""
    return _PACKAGE / "schemas" / f"{name}.json"


def findings() -> Path:
    """Return the folder of finding texts, one `<code>.md` each: meaning, a bad and a good example."""
    return _PACKAGE / "findings"
