"""The page over HTTP, for a single user on this machine.

The server is bound to 127.0.0.1. Each path begins with a secret token, which is printed to the user
who started the server. Requests are refused if they name another host (DNS rebinding), come from
another page, or do not have the form of the requests of this page. The headers of the answers
forbid the browser to load from other hosts or to send data to them.
"""

import contextlib
import errno
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from socketserver import TCPServer
from typing import Any

from gatedjax._utils.json import to_json
from gatedjax._utils.types import Json

MOST_BYTES = 1 << 20
"""Largest size of the body of a request."""
SECONDS = 30
"""Seconds after which a silent connection is closed."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
}
Ask = Callable[[Json], Json]


def page_file(name: str) -> bytes:
    """Returns the content of the file `name` in the folder `page`, such as "explorer.js"."""
    return (resources.files("gatedjax.explore") / "page" / name).read_bytes()


class Server(ThreadingHTTPServer):
    """An HTTP server on 127.0.0.1 of the page, which also answers the messages of its script."""

    daemon_threads = True
    # The length of the queue of connections; the default of 5 refuses too many of them.
    request_queue_size = 128
    # On Windows this would let a second server take the port of the first server.
    allow_reuse_address = os.name != "nt"

    def __init__(self, ask: Ask, *, port: int = 0, token: str | None = None) -> None:
        self.ask, self.token = ask, secrets.token_urlsafe(16) if token is None else token
        # The files are read once, so that no request opens a file.
        self.files = {name: (page_file(file), kind) for name, (file, kind) in FILES.items()}
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                why = "in use" if error.errno == errno.EADDRINUSE else "not allowed"
                raise OSError(
                    f"port {port} is {why}: give another --port, or none for a free one"
                ) from error
            raise

    def server_bind(self) -> None:
        """Binds the server to its port without looking up this machine's name (can be slow)."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The accepted values of the Host header: "127.0.0.1:PORT" and "localhost:PORT"."""
        return tuple(f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost"))

    @property
    def address(self) -> str:
        """The address of the page with the secret token: "http://127.0.0.1:PORT/TOKEN/"."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of a connection, because a browser may close it at any time."""


class _Refused(Exception):
    """The reason why a request is refused; it never quotes the request, as the page may show it."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """A handler of one request per connection, because the rest of a refused body is no request."""

    server: Server
    server_version, sys_version = "gatedjax", ""
    timeout = SECONDS
    # A buffer, so that an answer is sent in a single piece.
    wbufsize = -1

    def do_GET(self) -> None:
        with self._refusals():
            name = self._check_request()
            if name not in FILES:
                self._wrong(name, "POST" if name == "ask" else None)
            self._send(HTTPStatus.OK, *self.server.files[name])

    def do_POST(self) -> None:
        with self._refusals():
            name = self._check_request()
            if name != "ask":
                self._wrong(name, "GET" if name in FILES else None)
            answer = self._answer(self._body())
            self._send(HTTPStatus.OK, to_json(answer).encode(), "application/json")

    def _check_request(self) -> str:
        """Checks the headers and the token of a request, and returns the rest of its path."""
        hosts = self.headers.get_all("Host") or []
        # A page of another site may have a name that leads to 127.0.0.1. Its requests name that
        # site as their host.
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                "the host must be that of the address that gatedjax explore printed",
            )
        origin = self.headers.get("Origin")
        # A browser sends the origin with requests that another page makes.
        if origin is not None and origin != f"http://{hosts[0].lower()}":
            raise _Refused(HTTPStatus.FORBIDDEN, "requests must come from the page of this server")
        token, slash, name = self.path.removeprefix("/").partition("/")
        sent, expected = token.encode("utf-8", "replace"), self.server.token.encode()
        # The comparison takes the same time for all tokens, so that its time does not reveal the
        # token.
        if not hmac.compare_digest(sent, expected) or not slash:
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                "the path must begin with the token of this server: open the address that gatedjax "
                "explore printed",
            )
        return name

    def _wrong(self, name: str, method: str | None) -> None:
        if method is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"the method must be {method}")

    def _body(self) -> Json:
        """Returns the JSON object in the body of a request as a dict."""
        # A page of another site can send this type only after a request for permission, which the
        # server refuses.
        if self.headers.get_content_type() != "application/json":
            raise _Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json"
            )
        length = self.headers.get("Content-Length", "")
        # `int` would also accept signs, spaces and underscores, and a very long number would take
        # time.
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length must be a number of bytes")
        if int(length) > MOST_BYTES:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the message must have at most {MOST_BYTES:,} bytes",
            )
        try:
            message = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "the message must be a JSON object")
        return message

    def _answer(self, question: Json) -> Json:
        try:
            return self.server.ask(question)
        except ValueError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        except Exception as error:  # Such as a device without memory; the page shows the message.
            message = f"the model cannot answer: {str(error)[:200] or type(error).__name__}"
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, message) from error

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except _Refused as error:
            body = to_json({"error": str(error)}).encode()
            self._send(error.status, body, "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return self.server_version

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # `message` and `explain` are not sent, because they may quote the request.
        unknown = code == HTTPStatus.NOT_IMPLEMENTED
        status = HTTPStatus.METHOD_NOT_ALLOWED if unknown else HTTPStatus(code)
        self._send(status, to_json({"error": status.phrase}).encode(), "application/json")

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing, because the address contains the token."""
