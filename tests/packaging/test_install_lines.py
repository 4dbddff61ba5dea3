"""What our texts tell people to install. tests/long/packaging/test_install.py runs every line in an empty environment."""

from tests.support import install_lines

NOT_OURS = {"gpushare", "gpushare-node"}
"""On PyPI another program, and a name that we do not publish: somebody else may register it."""


def test_no_text_tells_anyone_to_install_what_is_not_ours() -> None:
    lines = install_lines.install_lines()
    assert lines["pip install ."]
    assert lines["pip install PySocks"] == "compiler/gpushare/cluster/live/connection.py"
    assert {line: place for line, place in lines.items() if NOT_OURS & install_lines.projects(line)} == {}


def test_foreign_gpushare_is_found_in_every_spelling() -> None:
    for word in ("gpushare", "GPUshare==1.0", '"gpushare[test]>=1"', "--upgrade gpushare"):
        (line,) = install_lines._LINE.findall(f"Run `python -m pip install {word}`, or not.")
        assert install_lines.projects(line) == {"gpushare"}, word
    assert install_lines.projects("pip install . ./node-runtime gpushare-compiler") == {"gpushare-compiler"}
