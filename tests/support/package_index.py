"""A package index: what twine uploads to `legacy/`, pip finds under `simple/`. The rest comes from pip's own index."""

import email.parser
import email.policy
import hashlib
import html
import json
import re
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOGIN = {"TWINE_USERNAME": "__token__", "TWINE_PASSWORD": "of the tests"}
_JSON = "application/vnd.pypi.simple.v1+json"


@contextmanager
def package_index(folder: Path, own: Sequence[str] = ("gpushare", "gpushare-compiler", "gpushare-node")) -> Iterator[str]:
    """Serve the files of `folder` as an index, and take uploads into it. Yields the address.

    A project of `own` without files does not exist; PyPI is never asked for one. The node runtime is not published.
    """
    found = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    others = found.stdout.strip() or "https://pypi.org/simple"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, _, name = self.path.strip("/").partition("/")
            files = {path.name: path for path in folder.iterdir()}
            if kind == "files" and name in files:
                self.answer(200, files[name].read_bytes(), "application/octet-stream")
            elif kind == "simple" and (digests := {one: _digest(files[one]) for one in sorted(files) if _project(one) == name}):
                self.page(digests, name)
            elif kind != "simple" or name in own:
                self.answer(404)
            else:
                self.send_response(302)
                self.send_header("Location", f"{others.rstrip('/')}/{name}/")
                self.end_headers()

        def page(self, digests: dict[str, str], name: str) -> None:
            if self.headers["Accept"] == _JSON:
                listed = [
                    {"filename": file, "url": f"/files/{file}", "hashes": {"sha256": one}} for file, one in digests.items()
                ]
                document = {"meta": {"api-version": "1.0"}, "name": name, "files": listed}
                self.answer(200, json.dumps(document).encode(), _JSON)
            else:
                links = "".join(
                    f'<a href="/files/{file}#sha256={one}">{html.escape(file)}</a>\n' for file, one in digests.items()
                )
                self.answer(200, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            login = b64encode(":".join(LOGIN.values()).encode()).decode()
            if self.headers["Authorization"] != f"Basic {login}":
                self.answer(403)
                return
            parser = email.parser.BytesParser(policy=email.policy.HTTP)
            form = parser.parsebytes(b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n" + body)
            fields = {str(part.get_param("name", header="content-disposition")): part for part in form.iter_parts()}
            content = fields["content"].get_payload(decode=True)
            name = Path(fields["content"].get_filename() or "").name
            assert isinstance(content, bytes)
            if (folder / name).exists() or fields["sha256_digest"].get_content().strip() != hashlib.sha256(content).hexdigest():
                self.answer(400)
                return
            (folder / name).write_bytes(content)
            self.answer(200)

        def answer(self, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _project(file: str) -> str:
    return re.sub(r"[-_.]+", "-", file.partition("-")[0]).lower()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
