"""What the server refuses, and what it sends with every answer."""

import http.client
import json
import socket
import threading

import pytest

from gatedjax.explore._server import MOST_BYTES, Server

TOKEN = "t" * 22
JSON = {"Content-Type": "application/json"}


def ask(message):
    if message.get("bad"):
        raise ValueError("text must be a string")
    if message.get("worse"):
        raise RuntimeError("out of memory")
    return {"heard": message}


@pytest.fixture(scope="module")
def server():
    with Server(ask, token=TOKEN) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def request(server, method, path, body=None, headers=None, *, host=None):
    """(status, headers, body) of a request with exactly these headers."""
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if host is None:
        host = [f"127.0.0.1:{server.server_port}"]
    for one in host:
        line.putheader("Host", one)
    for name, value in (headers or {}).items():
        line.putheader(name, value)
    if body is not None and "Content-Length" not in (headers or {}):
        line.putheader("Content-Length", str(len(body)))
    line.endheaders(body)
    answer = line.getresponse()
    found = answer.status, answer.headers, answer.read()
    line.close()
    return found


def test_many_connections_may_wait_to_be_accepted(monkeypatch):
    asked = []
    listen = socket.socket.listen

    class Listening(socket.socket):
        def listen(self, backlog=0):
            asked.append(backlog)
            return listen(self, backlog)

    monkeypatch.setattr("socketserver.socket.socket", Listening)
    with Server(ask):
        assert asked == [128]


def test_the_page_comes_with_its_policy(server):
    for name, kind in (("", "text/html"), ("explorer.js", "text/javascript"),
                       ("explorer.css", "text/css")):  # fmt: skip
        status, headers, body = request(server, "GET", f"/{TOKEN}/{name}")
        assert (status, headers["Content-Type"].split(";")[0]) == (200, kind)
        assert headers["Cache-Control"] == "no-store"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Python" not in headers["Server"]
        assert body
    page = request(server, "GET", f"/{TOKEN}/")[2].decode()
    assert "<script>" not in page
    assert "style=" not in page


def test_a_question_is_answered(server):
    message, host = {"do": "answer", "text": "שלום"}, [f"localhost:{server.server_port}"]
    content = json.dumps(message).encode()
    status, headers, body = request(server, "POST", f"/{TOKEN}/ask", content, JSON)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"heard": message}
    assert request(server, "POST", f"/{TOKEN}/ask", b"{}", JSON, host=host)[0] == 200


@pytest.mark.parametrize("path", [
    "/", "/ask", f"/{TOKEN}", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", f"/x/{TOKEN}/",
    "/%74" + TOKEN[1:] + "/", f"/{TOKEN.upper()}/",
])  # fmt: skip
def test_a_wrong_token_is_refused(path, server):
    for method in ("GET", "POST"):
        status, headers, body = request(server, method, path, b"{}", JSON)
        assert status == 403
        assert TOKEN.encode() not in body
        assert "default-src 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", [
    "index.html", "../_server.py", "%2e%2e/_server.py", "..", "explorer.js/", "explorer.js?x",
    "ask/", "page/explorer.js", "/etc/passwd",
])  # fmt: skip
def test_other_paths_are_not_there(path, server):
    assert request(server, "GET", f"/{TOKEN}/{path}")[0] == 404
    assert request(server, "POST", f"/{TOKEN}/{path}", b"{}", JSON)[0] == 404


@pytest.mark.parametrize("host", [
    ["evil.example"], ["evil.example:{port}"], ["127.0.0.1"], ["127.0.0.1:1"], [],
    ["127.0.0.1:{port}", "evil.example"], ["127.0.0.1:{port}.evil.example"],
])  # fmt: skip
def test_another_host_is_refused(host, server):
    named = [one.format(port=server.server_port) for one in host]
    assert request(server, "GET", f"/{TOKEN}/", host=named)[0] == 403
    assert request(server, "POST", f"/{TOKEN}/ask", b"{}", JSON, host=named)[0] == 403


def test_another_page_is_refused(server):
    path = f"/{TOKEN}/ask"
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.server_port}"):
        assert request(server, "POST", path, b"{}", {**JSON, "Origin": origin})[0] == 403
    own = f"http://127.0.0.1:{server.server_port}"
    assert request(server, "POST", path, b"{}", {**JSON, "Origin": own})[0] == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH", "X"])
def test_other_methods_are_refused(method, server):
    assert request(server, method, f"/{TOKEN}/ask", b"{}", JSON)[0] == 405
    # each path has one method
    assert request(server, "GET", f"/{TOKEN}/ask")[0] == 405
    assert request(server, "POST", f"/{TOKEN}/", b"{}", JSON)[0] == 405


def test_bodies_of_another_form_are_refused(server):
    path = f"/{TOKEN}/ask"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert request(server, "POST", path, b"{}", {"Content-Type": kind})[0] == 415
    assert request(server, "POST", path, b"{}")[0] == 415
    assert request(server, "POST", path, None, JSON)[0] == 411
    for length in ("-1", "x", "1e3", "9" * 30):
        assert request(server, "POST", path, None, {**JSON, "Content-Length": length})[0] == 411
    much = {**JSON, "Content-Length": str(MOST_BYTES + 1)}
    status, _, body = request(server, "POST", path, None, much)
    assert status == 413
    assert f"at most {MOST_BYTES:,} bytes" in json.loads(body)["error"]
    for body in (b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"3"):
        assert request(server, "POST", path, body, JSON)[0] == 400


def test_what_the_model_refuses_is_said(server):
    status, _, body = request(server, "POST", f"/{TOKEN}/ask", b'{"bad": 1}', JSON)
    assert (status, json.loads(body)) == (400, {"error": "text must be a string"})
    status, _, body = request(server, "POST", f"/{TOKEN}/ask", b'{"worse": 1}', JSON)
    assert status == 500
    assert json.loads(body) == {"error": "the model cannot answer: out of memory"}


def test_no_request_line_at_all(server):
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as line:
        line.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        assert line.recv(4096) == b'{"error": "Bad Request"}'


def test_a_port_in_use_is_said(server):
    with pytest.raises(OSError, match=f"port {server.server_port} is in use"):
        Server(ask, port=server.server_port)


def test_it_listens_to_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    with Server(ask) as other:
        assert len(other.token) >= 20
        assert other.token != server.token
