"""JSON lines over a stream."""

import asyncio
import json

MAX_LINE = 64 * 1024 * 1024


def plain(value):
    """What JSON has no form for: arrays and scalars of numpy and torch, sets, and tuples that hide in them."""
    for name in ("tolist", "item"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


def encode(message):
    """One message as a line. Raises `TypeError` or `ValueError` for what JSON cannot carry, NaN and infinities included."""
    text = json.dumps(message, allow_nan=False, default=plain, ensure_ascii=False, separators=(",", ":"))
    # Python's texts may hold lone surrogates, which no other reader of JSON takes.
    return text.encode("utf-8", "replace") + b"\n"


class Channel:
    """One connection. `send` never waits: messages are small, and the other side always reads."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    async def receive(self):
        """The next message, or `None` at the end."""
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return None
        except OSError:
            return None
        except asyncio.LimitOverrunError:
            raise ValueError(f"a line of more than {MAX_LINE} bytes") from None
        return json.loads(line)

    def send(self, message):
        self.send_line(encode(message))

    def send_line(self, line):
        if not self._writer.is_closing():
            self._writer.write(line)

    async def flush(self):
        try:
            await self._writer.drain()
        except OSError:
            pass

    def close(self):
        self._writer.close()
