"""A proxy that keeps what passes it, and can lose an answer on its way.

One stands between a client and the router, another between the router and the engine: the first counts what a client really sends, the
second knows what the engine really said.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import socket
import threading

NOT_PASSED_ON = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclasses.dataclass
class Exchange:
    """A request and what it was answered."""

    method: str
    path: str
    headers: dict
    body: bytes
    status: int = 0
    reply: bytes = b""
    lost: bool = False

    @property
    def request(self):
        return json.loads(self.body)

    def events(self):
        """The data of a stream's events."""
        lines = self.reply.decode().split("\n")
        return [line[6:] for line in lines if line.startswith("data: ")]


class Proxy:
    """Passes everything on to `target`, a URL."""

    def __init__(self, target):
        self.host, port = target.removeprefix("http://").rstrip("/").split(":")
        self.port = int(port)
        self.exchanges = []
        self._lose = 0
        self._lock = threading.Lock()
        server = _Server(("127.0.0.1", 0), _handler(self))
        self._server = server
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def lose_next_answer(self):
        """The next chat is answered, and its client never sees it."""
        with self._lock:
            self._lose = 1

    def chats(self):
        """The chats that passed, in their order."""
        return [it for it in self.exchanges if it.path.endswith("/chat/completions")]

    def _is_lost(self, exchange):
        with self._lock:
            if exchange.path.endswith("/chat/completions") and self._lose:
                self._lose -= 1
                return True
        return False


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # Whoever went away is missed by the test that wants its answer.
        pass


def _handler(proxy):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else a small write waits for an acknowledgement.
        wbufsize = 0

        def setup(self):
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.pass_on()

        do_POST = do_DELETE = do_GET

        def pass_on(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = dict(self.headers.items())
            exchange = Exchange(self.command, self.path, headers, body)
            proxy.exchanges.append(exchange)
            exchange.lost = proxy._is_lost(exchange)
            onward = http.client.HTTPConnection(proxy.host, proxy.port, timeout=60)
            with contextlib.closing(onward), contextlib.suppress(OSError, http.client.HTTPException):
                passed = {name: value for name, value in headers.items() if name.lower() not in NOT_PASSED_ON}
                onward.request(self.command, self.path, body or None, passed)
                self.answer(exchange, onward.getresponse())
                return
            self.close_connection = True

        def answer(self, exchange, answer):
            exchange.status = answer.status
            if exchange.lost:
                exchange.reply = answer.read()
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in NOT_PASSED_ON:
                    self.send_header(name, value)
            if answer.length is not None:
                exchange.reply = answer.read()
                self.send_header("content-length", str(len(exchange.reply)))
                self.end_headers()
                self.wfile.write(exchange.reply)
                return
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while piece := answer.read1(65536):
                exchange.reply += piece
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

    return Handler
