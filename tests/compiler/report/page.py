"""A page for a browser, as a test reads it, and a text that tries to be more than text."""

from html.parser import HTMLParser

HOSTILE = '\\"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e'


class Page(HTMLParser):
    """The elements of a page: how many of each, their ids, labels and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element."""
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        self.ids += [value for key, value in attrs if key == "id" and value]

    def handle_data(self, data: str) -> None:
        """Note the text; elements part words, as in a browser."""
        self.text += f"{data} "
