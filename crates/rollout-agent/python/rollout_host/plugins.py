"""Runs the driver's plug-ins: calls of user functions over a unix socket (docs/protocol.md, section 4).

Calls run at the same time in one event loop; sync functions run in threads. Every call is answered once, with a result or with an
error that names the function; a client that goes away cancels its calls. A function that cannot be cancelled costs a thread; when
too many of those have gathered, the process ends, and its supervisor starts a fresh one.
"""

import asyncio
import functools
import inspect
import math
import os
import sys
import threading
import types

from rollout_host import calls, channel, errors, output

# How long a cancelled call may take to end.
CANCEL_SECONDS = 2.0
MAX_STUCK_CALLS = 16
STUCK_EXIT_CODE = 70


class NotSupported(Exception):
    """The protocol has the call, this host does not."""


class Cancelled(Exception):
    """The client cancelled the call."""


class PluginHost:
    """The calls of one process."""

    def __init__(self):
        self._stuck = 0
        self._calls = {
            "ping": self._ping,
            "load": self._load,
            "reward": self._reward,
            "filter": self._filter,
            "tool": self._tool,
            "generate": self._generate,
        }

    async def serve(self, reader, writer):
        """Serves one connection to its end."""
        connection = channel.Channel(reader, writer)
        running = {}
        try:
            while True:
                request = await connection.receive()
                if not isinstance(request, dict) or "id" not in request:
                    return
                await connection.flush()
                if request.get("call") == "cancel":
                    call = running.get(request.get("target"))
                    connection.send({"id": request["id"], "result": call is not None})
                    if call is not None:
                        call.cancel()
                    continue
                task = asyncio.get_running_loop().create_task(self._call(request))
                running[request["id"]] = task
                task.add_done_callback(functools.partial(_answer, connection, running, request))
        except ValueError as error:
            print(f"a client sent what is no request: {error}", file=sys.stderr)
        finally:
            connection.close()
            await self._cancel_all(list(running.values()))

    async def _cancel_all(self, tasks):
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, stuck = await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        self._stuck += len(stuck)
        for task in stuck:
            task.add_done_callback(self._unstuck)
        if self._stuck >= MAX_STUCK_CALLS:
            print(f"{self._stuck} calls cannot be cancelled: the plug-in host ends", file=sys.stderr, flush=True)
            os._exit(STUCK_EXIT_CODE)

    def _unstuck(self, _):
        self._stuck -= 1

    async def _call(self, request):
        try:
            call = self._calls.get(request.get("call"))
            if call is None:
                raise ValueError(f"there is no call {request.get('call')!r}")
            return channel.encode({"id": request["id"], "result": await call(request)})
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever a user's function raises is its result
            return _error(request, error)

    async def _ping(self, _):
        return "pong"

    async def _load(self, request):
        path = _field(request, "path", str)
        function = _function(path)
        parameters = inspect.signature(function).parameters.values()
        return {
            "path": path,
            "async": calls.is_async(function),
            "parameters": [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)],
            "keywords": any(p.kind is p.VAR_KEYWORD for p in parameters),
        }

    async def _reward(self, request):
        path, function, args, samples = _scoring(request)
        if request.get("batch"):
            rewards = await calls.call(function, args, samples)
            rewards = channel.plain(rewards) if hasattr(rewards, "tolist") else rewards
            if not isinstance(rewards, (list, tuple)):
                raise TypeError(f"{path} returned {_described(rewards)}; expected a list with {len(samples)} rewards")
            if len(rewards) != len(samples):
                raise ValueError(f"{path} returned {len(rewards)} rewards for {len(samples)} samples")
        else:
            rewards = await _all(calls.call(function, args, sample) for sample in samples)
        return [_checked_reward(path, index, reward) for index, reward in enumerate(rewards)]

    async def _filter(self, request):
        path, function, args, samples = _scoring(request)
        decision = await calls.call(function, args, samples)
        if isinstance(decision, dict):
            keep, reason = decision.get("keep"), decision.get("reason")
        elif hasattr(decision, "keep"):
            keep, reason = decision.keep, getattr(decision, "reason", None)
        else:
            keep, reason = decision, None
        keep = keep.item() if hasattr(keep, "item") else keep
        if not isinstance(keep, bool):
            raise TypeError(f"{path} returned {_described(decision)}; expected a bool, {{'keep': bool, 'reason': str}} or a DynamicFilterOutput")
        return {"keep": keep, "reason": None if reason is None else errors.bounded(str(reason), 256)}

    async def _tool(self, request):
        path = _field(request, "path", str)
        answer = await calls.call(_function(path), _field(request, "name", str), _field(request, "params", dict))
        if not isinstance(answer, str):
            raise TypeError(f"{path} returned {_described(answer)}; expected a str")
        return answer

    async def _generate(self, _):
        raise NotSupported("custom generate functions are not supported yet")


def _answer(connection, running, request, task):
    """Answers a call when its task is done; one that was cancelled may not have made its first step."""
    running.pop(request["id"], None)
    connection.send_line(_error(request, Cancelled("the call was cancelled")) if task.cancelled() else task.result())


async def _all(coroutines):
    """Like `gather`, but leaves nothing running when one of them fails."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _scoring(request):
    from miles.utils.types import Sample

    path = _field(request, "path", str)
    samples = [Sample.from_dict(sample) for sample in _field(request, "samples", list)]
    args = request.get("args")
    return path, _function(path), types.SimpleNamespace(**(args if isinstance(args, dict) else {})), samples


def _function(path):
    try:
        function, _ = calls.load(path)
    except (calls.PathError, TypeError):
        raise
    except BaseException as error:  # SystemExit at import included
        message = f"{path} cannot be loaded: {type(error).__name__}: {errors.message_of(error)}"
        raise ImportError(message) from error
    return function


def _field(request, name, kind):
    value = request.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"the request has no {name!r} of type {kind.__name__}")
    return value


def _checked_reward(path, index, reward):
    reward = reward.item() if hasattr(reward, "item") else reward
    if isinstance(reward, bool):
        return float(reward)
    if isinstance(reward, (int, float)):
        if not math.isfinite(reward):
            raise ValueError(f"{path} returned {reward} for sample {index}; a reward is a finite number")
        return reward
    if isinstance(reward, dict):
        return reward
    raise TypeError(f"{path} returned {_described(reward)} for sample {index}; expected a number or a dict")


def _described(value):
    text = repr(value)
    return f"{type(value).__name__} {text[:80]}{'...' if len(text) > 80 else ''}" if value is not None else "None"


def _error(request, error):
    kind = "ImportError" if isinstance(error, calls.PathError) else type(error).__name__
    trace = errors.traceback_of(error.__cause__ if isinstance(error, ImportError) and error.__cause__ else error)
    return channel.encode(
        {"id": request["id"], "error": {"type": kind, "message": errors.message_of(error), "traceback": trace}}
    )


def _end_with_input():
    """Ends this process when its standard input is closed: the supervisor is gone."""
    supervisor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)

    def wait():
        while os.read(supervisor, 4096):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True, name="rollout-supervisor").start()


async def _listen(path):
    directory = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    # A unix socket's path has at most 107 bytes; this one is short whatever the directory is.
    short = f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    if os.path.lexists(short):
        os.unlink(short)
    host = PluginHost()
    server = await asyncio.start_unix_server(host.serve, short, limit=channel.MAX_LINE)
    await server.serve_forever()


def main(path):
    """Listens until the supervisor is gone."""
    _end_with_input()
    output.install()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    listening = loop.create_task(_listen(path))
    while not listening.done():
        try:
            loop.run_until_complete(listening)
        except (SystemExit, KeyboardInterrupt) as error:
            print(f"a task of a plug-in raised {type(error).__name__}; the host goes on", file=sys.stderr)
