"""Keeps the last output of each session that runs in this process, and passes everything on to the real streams."""

import collections
import contextvars
import sys

TAIL_CHARACTERS = 64 * 1024

_current_tail = contextvars.ContextVar("rollout_output_tail", default=None)


class Tail:
    """The last characters that were written; bounded."""

    def __init__(self):
        self._chunks = collections.deque()
        self._length = 0

    def write(self, text):
        text = text[-TAIL_CHARACTERS:]
        self._chunks.append(text)
        self._length += len(text)
        while self._length - len(self._chunks[0]) >= TAIL_CHARACTERS:
            self._length -= len(self._chunks.popleft())

    def text(self):
        return "".join(self._chunks)[-TAIL_CHARACTERS:]


class _Stream:
    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        tail = _current_tail.get()
        if tail is not None and isinstance(text, str) and text:
            tail.write(text)
        return self._stream.write(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __iter__(self):
        return iter(self._stream)


def install():
    """Replaces `sys.stdout` and `sys.stderr`; before user code can have taken hold of them."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    sys.stdout = _Stream(sys.stdout)
    sys.stderr = _Stream(sys.stderr)


def keep(tail):
    """From here on, what this context writes is kept in `tail`."""
    _current_tail.set(tail)
