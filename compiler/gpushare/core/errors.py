"""HintedError: the base of all errors that a person can act on."""


class HintedError(Exception):
    """The environment or the call is at fault, not gpushare: a message of one line, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
