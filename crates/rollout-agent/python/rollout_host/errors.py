"""Turns exceptions into bounded texts that end where the user's code begins."""

import importlib
import os
import traceback

MAX_TRACEBACK = 8 * 1024
MAX_MESSAGE = 2 * 1024

_HOST = os.path.dirname(os.path.abspath(__file__)) + os.sep


def bounded(text, limit):
    """Cuts the middle out of a text that is too long."""
    if len(text) <= limit:
        return text
    head = limit // 4
    tail = limit - head - 40
    return f"{text[:head]}\n... {len(text) - head - tail} characters cut ...\n{text[-tail:]}"


def message_of(error):
    """One line about an exception, without its traceback."""
    try:
        return bounded(str(error), MAX_MESSAGE)
    except Exception:  # a broken __str__ must not hide the error
        return "(the exception has no readable text)"


def traceback_of(error):
    """The traceback of an exception without the host's own frames at its top; only its last line when nothing is left."""
    try:
        frames = error.__traceback__
        while frames is not None and _is_host(frames):
            frames = frames.tb_next
        if frames is None:
            text = "".join(traceback.format_exception_only(type(error), error))
        else:
            text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:
        text = f"{type(error).__name__}: {message_of(error)}"
    return bounded(text, MAX_TRACEBACK)


def _is_host(frames):
    file = frames.tb_frame.f_code.co_filename
    return file.startswith((_HOST, "<frozen importlib")) or file == importlib.__file__
