"""Finds a user's function and calls it: async in the event loop, sync in a thread of its own."""

import asyncio
import contextvars
import ctypes
import functools
import importlib
import inspect
import threading


class Stopped(BaseException):
    """Raised inside a thread whose call was cancelled."""


class PathError(ImportError):
    """A dotted path that leads to no function."""

    __module__ = "builtins"  # in a traceback, it is not the host that counts


def split(path):
    """`package.module.attr` -> its module and its attribute."""
    module, _, attribute = path.rpartition(".")
    if not module or not attribute:
        raise PathError(f"{path!r} is not a path of the form module.function")
    return module, attribute


def load(path):
    """Imports the module of a dotted path and answers the function and the module."""
    name, attribute = split(path)
    module = importlib.import_module(name)
    try:
        function = getattr(module, attribute)
    except AttributeError:
        raise PathError(f"module {name!r} ({getattr(module, '__file__', 'no file')}) has no function {attribute!r}") from None
    if not callable(function):
        raise TypeError(f"{path} is a {type(function).__name__}, not a function")
    return function, module


def is_async(function):
    """Whether calling it gives a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(type(function), "__call__", None))


def accepted(function, offered, by_name_only=()):
    """Names of the offered keyword arguments that a function takes; an error when it needs one that is not offered.

    Names in `by_name_only` are given only to a function that has a parameter of that name, not to one that takes `**kw`.
    """
    parameters = inspect.signature(function).parameters.values()
    keywords = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = set()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is not parameter.POSITIONAL_ONLY and parameter.name in offered:
            named.add(parameter.name)
        elif parameter.default is parameter.empty:
            only = " (it is positional-only)" if parameter.kind is parameter.POSITIONAL_ONLY else ""
            raise TypeError(
                f"{getattr(function, '__qualname__', function)} needs the parameter {parameter.name!r}{only}; "
                f"what it can get by keyword is {', '.join(offered)}"
            )
    return {name for name in offered if name in named or (keywords and name not in by_name_only)}


async def call(function, *positional, **keywords):
    """Calls a function and awaits what it gives. Cancelling reaches a sync function as the exception `Stopped` in its thread."""
    if is_async(function):
        return await function(*positional, **keywords)
    result = await _call_in_thread(functools.partial(function, *positional, **keywords))
    return await result if inspect.isawaitable(result) else result


def unrun(result):
    """What is wrong with a result that is code which has not run yet; `None` for every other result."""
    kind = type(result).__name__
    if inspect.iscoroutine(result):
        result.close()  # or Python complains that nobody awaited it
        return f"a {kind}, whose body has not run: await it"
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return f"a {kind}, whose body has not run: a function with yield runs only when it is iterated; remove the yield"
    return None


async def _call_in_thread(function):
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    context = contextvars.copy_context()

    def tell(outcome):
        if not ended.done():
            ended.set_result(outcome)

    def body():
        try:
            outcome = (context.run(function), None)
        except BaseException as error:  # carried over to the caller
            outcome = (None, error)
        try:
            loop.call_soon_threadsafe(tell, outcome)
        except RuntimeError:
            pass  # the loop is closed: the host ends

    thread = threading.Thread(target=body, daemon=True, name="rollout-call")
    thread.start()
    cancelled = False
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            cancelled = True
            _raise_in(thread)
    result, error = ended.result()
    if cancelled:
        raise asyncio.CancelledError
    if error is not None:
        raise error
    return result


def _raise_in(thread):
    """Raises `Stopped` in a thread, as soon as it runs Python code again."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
