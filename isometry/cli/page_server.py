"""A page served to this computer alone: 127.0.0.1, an address that cannot be guessed, nothing from outside."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
Answer = Callable[
    [dict[str, str]], dict[str, Any]
]  # what a question asks → what is answered; ValueError: a bad question


class PageServer(ThreadingHTTPServer):
    """Serves one page under ``/TOKEN/`` and answers questions under ``/TOKEN/why``; anything else is not found.

    Requests that name another host are refused: a page of a foreign site, whose name has been made to point to this
    computer, could otherwise read what is served here.
    """

    daemon_threads = True

    def __init__(self, make_page: Callable[[str, str], str], answer: Answer, port: int = 0):
        self.token, self.nonce, self.answer = secrets.token_urlsafe(24), secrets.token_urlsafe(16), answer
        super().__init__((HOST, port), _Handler)
        self.page = make_page(self.nonce, f"/{self.token}/why").encode()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")
        if host not in (f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}"):
            self._send(403, b"This page is served to this computer alone.\n", "text/plain")
            return
        where = urlsplit(self.path)
        first, _, rest = where.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(first.encode(), self.server.token.encode()):
            self._send(403, b"Open the whole address that isometry explore has printed.\n", "text/plain")
        elif rest == "":
            self._send(200, self.server.page, "text/html; charset=utf-8")
        elif rest == "why":
            self._tell({name: values[0] for name, values in parse_qs(where.query).items()})
        else:
            self._send(404, b"There is nothing here.\n", "text/plain")

    def _tell(self, question: dict[str, str]) -> None:
        try:
            status, told = 200, self.server.answer(question)
        except ValueError as error:
            status, told = 400, {"error": str(error)}
        self._send(status, json.dumps(told, allow_nan=False).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        nonce = f"'nonce-{self.server.nonce}'"
        policy = f"default-src 'none'; script-src {nonce}; style-src {nonce}; img-src data:; connect-src 'self'"
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: the address holds the token, which should stand in no log."""
