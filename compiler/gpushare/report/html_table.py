"""Tables of the pages for a browser: rows, and rules of the style that align them and name each value on a narrow screen."""

import hashlib
from collections.abc import Iterable, Sequence

from gpushare.core.printable import visible
from gpushare_node.contract.struct import Struct


class Table(Struct):
    """A table. `numbers` and `codes` are the columns that have numbers, and names that people copy.

    `headers` are texts of ours, never of an input: they are part of the style. `more` says what is left out.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    id: str = ""
    numbers: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    more: str = ""

    @property
    def kind(self) -> str:
        """The class of all tables with the same columns."""
        return "t" + hashlib.sha256(repr((self.headers, self.numbers, self.codes)).encode()).hexdigest()[:6]

    def rules(self) -> str:
        """Return the rules of the style: no cell needs a class of its own, which would be most of a large page."""
        return "".join(self._rules())

    def _rules(self) -> Iterable[str]:
        for number in self.numbers:
            yield f".{self.kind} tr > :nth-child({number + 1}) {{ text-align: right; font-variant-numeric: tabular-nums; }}\n"
        for code in self.codes:
            yield f".{self.kind} tbody tr > :nth-child({code + 1}) {{ font-family: var(--mono); font-size: .875rem; }}\n"
        named = "".join(
            f' .{self.kind} td:nth-child({number})::before {{ content: "{header}"; }}'
            for number, header in enumerate(self.headers[1:], 2)
        )
        yield f"@media screen and (max-width: 40rem) {{{named} }}\n"


def table(  # noqa: PLR0913 - the fields of a table
    title: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    id: str = "",  # noqa: A002 - as the attribute in HTML
    numbers: Sequence[int] = (),
    codes: Sequence[int] = (),
    most: int | None = None,
    more: str = "",
) -> Table:
    """Return a table without the columns in which no row has anything, the first aside; at most `most` rows."""
    shown = [tuple(map(visible, row)) for row in rows]
    left = 0 if most is None else len(shown) - most
    kept = [at for at in range(len(headers)) if at == 0 or any(row[at] not in {"", "-"} for row in shown)]
    return Table(
        id=id,
        title=title,
        headers=tuple(headers[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in shown[:most]),
        numbers=tuple(kept.index(at) for at in numbers if at in kept),
        codes=tuple(kept.index(at) for at in codes if at in kept),
        more=more or (f"and {left} more; --format json has them" if left > 0 else ""),
    )
