"""Reading a side of a comparison: an intent, or a bundle as its files are now.

Beside `inputs`, because most commands compare nothing, and the modules of `compare` would be an eighth of what they import.
"""

from collections.abc import Mapping
from pathlib import Path

from gpushare.bundle import lock, reader, writer
from gpushare.cli.exits import CouldNotRunError
from gpushare.cli.inputs import LoadedIntent, broken, bundle_of, compiled, read_files, refuse_other_folders
from gpushare.compare import sides
from gpushare.compare.files import of_artifacts
from gpushare.compare.sides import Side
from gpushare.core.diagnostics import Finding
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from gpushare.intent import reader as intent_reader
from gpushare.reading import source
from gpushare.reading.source import Source
from gpushare_node.contract.struct import NOTHING, content_of, replace


class LoadedSide(LoadedIntent):
    """What was read, and the input of a comparison: what a bundle makes of the cluster, and the texts of its files."""

    made: Side | None = None
    files: Mapping[str, str] = NOTHING

    @property
    def side(self) -> Side:
        """The side of an intent or bundle without errors. Raises RuntimeError for one with errors: a bug of the caller."""
        if self.made is None:
            raise RuntimeError("what has errors is no side of a comparison")
        return self.made


def load_side(name: str, other: LoadedIntent | None = None, overlays: tuple[str, ...] = ()) -> LoadedSide:
    """Return the intent or the bundle of that name. An intent without a bundle of its own uses the lock of the other side."""
    directory = Path(name)
    if name not in ("", "-") and directory.is_dir():
        if overlays:
            raise CouldNotRunError(f"{name} is a bundle: an overlay is merged into an intent", "name the intent file")
        return _bundle(directory)
    read = compiled(name, bundle_of(name), other.previous_lock if other else lock.EMPTY, overlays)
    if read.compilation is None or read.compilation.plan is None:
        return LoadedSide(**content_of(read))
    return LoadedSide(**content_of(read), made=sides.of_plan(read.plan), files=of_artifacts(read.artifacts))


def _bundle(directory: Path) -> LoadedSide:
    """Return a bundle as its files are now, edited or not, without those that no longer exist; or what is wrong with them."""
    previous_lock = writer.read_lock(directory)
    if isinstance(previous_lock, Finding):
        unread = broken(previous_lock)
        return LoadedSide(**content_of(replace(unread, texts={previous_lock.file: unread.text})))
    no_text = source.read(b"", str(directory))  # a bundle has no text that findings could refer to
    refuse_other_folders(directory, (lock.INTENT, "chart"))
    files = read_files(directory, dict.fromkeys((lock.INTENT, *previous_lock.files, lock.FILE)))
    wrong = list(reader.findings(files, str(directory)))
    text = replace(source.read(files[lock.INTENT], lock.INTENT), file=f"{directory}/{lock.INTENT}")
    texts_of_files = {} if wrong else {path: data.decode() for path, data in files.items()}
    made = None if wrong else _side(text, texts_of_files)
    if isinstance(made, Finding):
        wrong = [(text.locate(made), text)]
    if made is None or isinstance(made, Finding):
        texts = {finding.file: text for finding, text in wrong}
        return LoadedSide(
            previous_lock=previous_lock, text=no_text, findings=tuple(finding for finding, _ in wrong), texts=texts
        )
    edited = lock.edited(previous_lock, files[lock.INTENT], text.file)
    side, own = made
    return LoadedSide(
        previous_lock=previous_lock,
        text=no_text,
        findings=() if edited is None else (edited,),
        made=side,
        cards=own,
        files=texts_of_files,
    )


def _side(intent: Source, files: Mapping[str, str]) -> tuple[Side, dict[str, Card]] | Finding:
    """Return the side of a bundle, and the cards that its intent defines; or what is wrong with these."""
    built = intent_reader.build(intent.data)
    wrong = cards.check(built.cards)
    if wrong:
        return wrong[0]
    own = {name: cards.build(name, document) for name, document in built.cards.items()}
    catalog = cards.Catalog(own=own)
    found = sides.of_bundle(files, intent_reader.of_vendors(built, catalog.vendors(pool.card for pool in built.pools)), catalog)
    return found if isinstance(found, Finding) else (found, own)
