"""A small asynchronous HTTP/1.1 client: keep-alive, chunked bodies, TLS. One request at a time per connection.

It never blocks the event loop, and bounds what it reads. Idle connections are kept per event loop and origin.
"""

import asyncio
import ssl
import urllib.parse

CONNECT_SECONDS = 10.0
MAX_HEAD = 64 * 1024
MAX_BODY = 1024 * 1024 * 1024
# A server closes idle connections after some time of its own; younger ones are safe to use again.
IDLE_SECONDS = 15.0

_pools = {}


class HttpError(OSError):
    """The exchange failed below HTTP's own statuses."""


class Response:
    """A whole answer."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def text(self):
        return self.body.decode("utf-8", "replace")


class _Connection:
    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.idle_since = 0.0

    def usable(self, now):
        return now - self.idle_since < IDLE_SECONDS and not self.reader.at_eof() and not self.writer.is_closing()


async def request(method, url, body=None, headers=None):
    """Sends one request and reads the whole answer."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise HttpError(f"not an http URL: {url!r}")
    loop = asyncio.get_running_loop()
    origin = (parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    idle = _pool(loop).setdefault(origin, [])
    head = _head(method, parts, body, headers)
    while idle:
        connection = idle.pop()
        if not connection.usable(loop.time()):
            connection.writer.close()
            continue
        try:
            return await _exchange(connection, method, head, body, idle)
        except _Unanswered:
            continue  # the server had closed it: no byte of the request was answered
    try:
        return await _exchange(await _connect(origin), method, head, body, idle)
    except _Unanswered as error:
        raise HttpError(str(error)) from None


def _pool(loop):
    """The idle connections of a loop. Those of loops that are over are dropped: sync agents run one loop per request."""
    pool = _pools.get(loop)
    if pool is None:
        for over in [other for other in list(_pools) if other.is_closed()]:
            _pools.pop(over, None)
        pool = _pools[loop] = {}
    return pool


class _Unanswered(Exception):
    pass


async def _connect(origin):
    scheme, host, port = origin
    context = ssl.create_default_context() if scheme == "https" else None
    try:
        opening = asyncio.open_connection(host, port, ssl=context, limit=MAX_HEAD)
        reader, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
    except asyncio.TimeoutError:
        raise HttpError(f"no connection to {host}:{port} within {CONNECT_SECONDS:.0f} s") from None
    return _Connection(reader, writer)


def _head(method, parts, body, headers):
    target = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (f"?{parts.query}" if parts.query else "")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    fields = {
        "host": f"{host}:{parts.port}" if parts.port else host,
        "accept": "*/*",
        "connection": "keep-alive",
    }
    if body is not None:
        fields["content-length"] = str(len(body))
        fields["content-type"] = "application/json"
    fields.update({name.lower(): str(value) for name, value in (headers or {}).items()})
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    for line in lines:
        if "\r" in line or "\n" in line:
            raise HttpError("a header or URL with a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _exchange(connection, method, head, body, idle):
    reusable = False
    try:
        try:
            connection.writer.write(head + (body or b""))
            await connection.writer.drain()
            status, headers = await _read_head(connection.reader)
        except (ConnectionError, BrokenPipeError) as error:
            raise _Unanswered(f"the connection broke before an answer: {error}") from None
        content, whole = await _read_body(connection.reader, method, status, headers)
        reusable = whole and headers.get("connection", "").lower() != "close"
        return Response(status, headers, content)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError) as error:
        raise HttpError(f"the answer broke off: {error}") from error
    finally:
        if reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            idle.append(connection)
        else:
            connection.writer.close()


async def _read_head(reader):
    while True:
        try:
            block = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            raise _Unanswered("the server closed the connection without an answer") from None
        status_line, *lines = block[:-4].decode("latin-1").split("\r\n")
        parts = status_line.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1."):
            raise ValueError(f"not an HTTP/1 answer: {status_line[:80]!r}")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if parts[0] == "HTTP/1.0":
            headers.setdefault("connection", "close")
        if int(parts[1]) >= 200:
            return int(parts[1]), headers


async def _read_body(reader, method, status, headers):
    if method == "HEAD" or status in (204, 304):
        return b"", True
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader), True
    if "content-length" in headers:
        length = int(headers["content-length"])
        if not 0 <= length <= MAX_BODY:
            raise ValueError(f"a body of {length} bytes")
        return await reader.readexactly(length), True
    body = await reader.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise ValueError(f"a body of more than {MAX_BODY} bytes")
    return body, False


async def _read_chunks(reader):
    chunks = []
    total = 0
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        total += size
        if total > MAX_BODY:
            raise ValueError(f"a body of more than {MAX_BODY} bytes")
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return b"".join(chunks)
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
