"""Chromium without a window, driven as its own developer tools drive it: over a pipe, with a person's width, theme and keys."""

import base64
import functools
import io
import itertools
import json
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import cache, wheels

_AXE = ("axe-playwright-python==0.1.8", "fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8")
"""The wheel that carries axe-core 4.12.1, and its digest."""


class PageError(Exception):
    """What the browser answers to a command that it cannot carry out, or the exception of a script."""


class Browser:
    """One tab. `console` has what the page wrote there, and its uncaught exceptions; `requests` every URL that it loaded."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._numbers = itertools.count(1)
        self._session = ""
        self._loaded = 0
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, page: Path | str, *, width: int = 1280, theme: str = "light", media: str = "") -> None:
        """Show the page of a file or URL on a screen of this width, in pixels, where this theme is preferred; or `print`ed."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": theme}])
        loaded = self._loaded
        self._call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while self._loaded == loaded:
            self._read()

    def run(self, script: str) -> Any:
        """The value of an expression, or of its promise."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in done:
            raise PageError(json.dumps(done["exceptionDetails"]))
        return done["result"].get("value")

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self._call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that matches."""
        place = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView({{block: 'center'}});"
            " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key: str, code: int) -> None:
        """Press a key; `code` is its Windows virtual key code."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def violations(self) -> list[Any]:
        """What axe-core finds, of all its rules."""
        self.run(f"{axe()}; 0")
        found: list[Any] = self.run("axe.run().then((found) => found.violations)")
        return found

    def picture(self, height: int) -> bytes:
        """The page as WebP, down to the end of the last of its parts that ends within this height in pixels."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        parts = "[...document.querySelectorAll('header, section, .pool')]"
        ends = f"{parts}.map((one) => one.getBoundingClientRect().bottom + scrollY)"
        whole = size["height"] <= height
        end = size["height"] if whole else max((end for end in self.run(ends) if end < height - 16), default=height - 16) + 16
        clip = {"x": 0, "y": 0, "width": size["width"], "height": end, "scale": 1}
        done = self._call("Page.captureScreenshot", format="webp", quality=85, clip=clip, captureBeyondViewport=True)
        return base64.b64decode(done["data"])

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self._call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def close(self) -> None:
        """End the browser."""
        self._session = ""
        self._call("Browser.close")
        self._commands.close()
        self._answers.close()

    def _call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") != number:
                continue
            if "error" in answer:
                raise PageError(f"{method}: {answer['error']}")
            return answer["result"]

    def _read(self) -> Any:
        """The next message; what it tells of the page is noted."""
        text = bytearray()
        while (letter := self._answers.read(1)) != b"\0":
            if not letter:
                raise PageError("the browser has ended")
            text += letter
        message = json.loads(text)
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded += 1
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.console.append(json.dumps(message["params"]))
        return message


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium of its own, with an empty profile."""
    read_commands, write_commands = os.pipe()
    read_answers, write_answers = os.pipe()
    # The browser reads from descriptor 3 and writes to descriptor 4, whatever they are here.
    shell = f'exec chromium "$@" 3<&{read_commands} 4>&{write_answers}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Root has no sandbox of it.
        command = (
            "bash",
            "-c",
            shell,
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        )
        done = subprocess.Popen(command, pass_fds=(read_commands, write_answers), stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_answers)
        try:
            tab = Browser(write_commands, read_answers)
            yield tab
            tab.close()
        finally:
            done.terminate()
            done.wait()


@functools.cache
def axe() -> str:
    """The script of axe-core."""
    requirement, sha256 = _AXE

    def fill(folder: Path) -> None:
        with zipfile.ZipFile(io.BytesIO(wheels.download(requirement, sha256))) as wheel:
            (folder / "axe.min.js").write_bytes(wheel.read("axe_playwright_python/axe.min.js"))

    return (cache.folder(f"axe-{sha256[:12]}", fill) / "axe.min.js").read_text(encoding="utf-8")
