"""Runs an agent function for many sessions at once, in one event loop.

The protocol is JSON lines (see docs/protocol.md, section 4). The module is imported before `ready` is said. A session's end is
told exactly once: with what the function returned, or with the traceback of what it raised. When it ignores its cancellation,
the message `stuck` follows, and the shim ends this process as soon as no other session needs it.
"""

import asyncio
import contextvars
import json
import os
import signal
import socket
import sys
import types
import weakref

from rollout_host import calls, channel, errors, output

# How often a cancellation is repeated while a session does not end.
INSIST_SECONDS = 0.05
DEFAULT_GRACE_SECONDS = 0.5
MAX_RESULT = 4 * 1024 * 1024
# What code raises at its import wherever it is imported. Others (files, connections, values) may be better elsewhere.
FAILS_EVERYWHERE = (ImportError, SyntaxError, NameError, AttributeError, TypeError, KeyError)

_current_session = contextvars.ContextVar("rollout_session", default=None)


class _Session:
    def __init__(self, start):
        self.id = start["session_id"]
        self.start = start
        self.tail = output.Tail()
        self.task = None
        self.told = False
        self.stopping = False
        # Tasks that the function started; they are cancelled with it.
        self.tasks = weakref.WeakSet()


class AgentHost:
    """The sessions of this process."""

    def __init__(self, function, module, accepted, parameters, channel):
        self._function = function
        self._module = module
        # Names of the arguments that the function takes.
        self._accepted = accepted
        self._parameters = parameters
        self._channel = channel
        self._sessions = {}
        self._aborts = {}
        self._background = set()
        self._pid = os.getpid()

    async def serve(self):
        """Serves messages until the shim closes the connection or says `exit`."""
        asyncio.get_running_loop().set_task_factory(_remember_task)
        self._channel.send({"type": "ready"})
        while True:
            message = await self._channel.receive()
            kind = message.get("type") if message is not None else "exit"
            if kind == "start":
                self._start(message)
            elif kind == "cancel":
                self._spawn(self._stop(message["session_id"], message.get("grace_seconds", DEFAULT_GRACE_SECONDS)))
            elif kind == "abort":
                self._spawn(self._run_abort(message))
            elif kind == "exit":
                await self._channel.flush()
                return

    def _spawn(self, coroutine):
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _start(self, message):
        session = _Session(message)
        self._sessions[session.id] = session
        context = contextvars.copy_context()
        context.run(output.keep, session.tail)
        context.run(_current_session.set, session)
        session.task = context.run(asyncio.get_running_loop().create_task, self._run(session))

    async def _run(self, session):
        start = session.start
        offered = {
            "base_url": lambda: start["base_url"],
            "prompt": lambda: start.get("prompt"),
            "request_kwargs": lambda: start.get("request_kwargs") or {},
            "metadata": lambda: start.get("metadata") or {},
            "args": lambda: self._args({}),
            "resume": lambda: bool(start.get("resume")),
        }
        try:
            keywords = {name: offered[name]() for name in self._accepted}
            ended = _returned(await calls.call(self._function, **keywords))
        except asyncio.CancelledError:
            ended = {"exit_code": None, "error": None if session.stopping else "the agent cancelled itself"}
        except SystemExit as error:
            ended = _exited(error)
        except BaseException as error:  # whatever a user's function raises is its result
            ended = {"exit_code": 1, "error": errors.traceback_of(error)}
        if os.getpid() != self._pid:
            os._exit(0)  # a child that the agent forked and that came back: the parent goes on, this one ends
        self._tell(session, ended)

    def _tell(self, session, ended):
        if session.told:
            return
        session.told = True
        self._sessions.pop(session.id, None)
        tail = session.tail.text()
        message = {"type": "ended", "session_id": session.id, "signal": None, "result": None, "error": None}
        message["log_tail"] = tail if tail and ended.get("exit_code") != 0 else None
        message.update(ended)
        try:
            line = channel.encode(message)
            problem = f"the agent returned {len(line)} bytes; the limit is {MAX_RESULT}" if len(line) > MAX_RESULT else None
        except (TypeError, ValueError) as error:
            problem = f"the agent returned what JSON cannot carry: {errors.message_of(error)}"
        if problem is not None:
            message.update(result=None, exit_code=1, error=problem)
            line = channel.encode(message)
        self._channel.send_line(line)

    async def _stop(self, session_id, grace):
        session = self._sessions.get(session_id)
        if session is None:
            return
        session.stopping = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while True:
            live = {task for task in (session.task, *session.tasks) if not task.done()}
            if not live:
                # A task that was cancelled before its first step has told nothing.
                return self._tell(session, {"exit_code": None, "error": None})
            if loop.time() >= deadline:
                break
            for task in live:
                task.cancel()
            await asyncio.wait(live, timeout=INSIST_SECONDS)
        self._tell(session, {"exit_code": None, "error": "the agent ignored its cancellation"})
        self._channel.send({"type": "stuck", "session_id": session.id})

    async def _run_abort(self, message):
        abort_id = message["abort_id"]
        if abort_id not in self._aborts:
            self._aborts[abort_id] = asyncio.ensure_future(self._call_abort(message))
        result, error = await self._aborts[abort_id]
        self._channel.send({"type": "abort_done", "abort_id": abort_id, "result": result, "error": error})

    async def _call_abort(self, message):
        abort = getattr(self._module, "abort", None)
        if abort is None:
            return "none", None
        if not callable(abort):
            return "failed", f"abort of module {self._module.__name__!r} is a {type(abort).__name__}, not a function"
        timeout = message.get("timeout_seconds", 30)
        hook = asyncio.get_running_loop().create_task(calls.call(abort, self._args(message.get("args") or {})))
        done, _ = await asyncio.wait({hook}, timeout=timeout)
        if not done:
            hook.cancel()
            return "timed_out", f"abort(args) did not end within {timeout} s"
        if hook.cancelled():
            return "failed", "abort(args) cancelled itself"
        error = hook.exception()
        if error is not None:
            return "failed", errors.traceback_of(error)
        problem = calls.unrun(hook.result())
        return ("succeeded", None) if problem is None else ("failed", f"abort(args) returned {problem}")

    def _args(self, given):
        """The job's parameters, with what is known of this rollout; what the driver says wins."""
        values = dict(self._parameters)
        sessions = list(self._sessions.values())
        instances = {}
        for session in sessions:
            metadata = session.start.get("metadata") or {}
            if metadata.get("session_server_instance_id"):
                instances[metadata.get("session_server_id")] = metadata["session_server_instance_id"]
        values["session_ids"] = [session.id for session in sessions]
        if instances:
            values["session_server_instance_ids"] = instances
            values["session_server_instance_id"] = next(iter(instances.values()))
        values.update(given)
        return types.SimpleNamespace(**values)


def _returned(result):
    if result is None or isinstance(result, dict):
        return {"exit_code": 0, "result": result}
    problem = calls.unrun(result) or f"a {type(result).__name__}; it may return a dict or None"
    return {"exit_code": 1, "error": f"the agent returned {problem}"}


def _exited(error):
    code = error.code
    if code is None or code == 0:
        return {"exit_code": 0}
    return {"exit_code": code if isinstance(code, int) else 1, "error": f"the agent called exit({code!r})"}


def _remember_task(loop, coroutine, **keywords):
    task = asyncio.Task(coroutine, loop=loop, **keywords)
    session = _current_session.get()
    if session is not None:
        session.tasks.add(task)
    return task


def _import(path):
    function, module = calls.load(path)
    offered = ("base_url", "prompt", "request_kwargs", "metadata", "args", "resume")
    return function, module, calls.accepted(function, offered, by_name_only=("args", "resume"))


def _take_protocol():
    """Moves the protocol away from standard input, and out of the reach of child processes."""
    protocol = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)

    def in_child():
        os.dup2(nothing, protocol.fileno())

    os.register_at_fork(after_in_child=in_child)
    return protocol


def main(path, parameters_file):
    """Imports the function and serves the shim."""
    protocol = _take_protocol()
    output.install()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    reader, writer = loop.run_until_complete(asyncio.open_connection(sock=protocol, limit=channel.MAX_LINE))
    connection = channel.Channel(reader, writer)
    try:
        parameters = {}
        if parameters_file:
            with open(parameters_file, encoding="utf-8") as file:
                parameters = json.load(file)
            if not isinstance(parameters, dict):
                raise TypeError(f"{parameters_file} holds a {type(parameters).__name__}, not an object")
        function, module, accepted = _import(path)
    except BaseException as error:  # SystemExit at import included
        fault = "agent" if isinstance(error, FAILS_EVERYWHERE) else "infra"
        connection.send({"type": "failed", "error": f"{path}: {errors.traceback_of(error)}", "fault": fault})
        loop.run_until_complete(connection.flush())
        _end(1)
    host = AgentHost(function, module, accepted, parameters, connection)
    serving = loop.create_task(host.serve())
    loop.add_signal_handler(signal.SIGTERM, serving.cancel)
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except asyncio.CancelledError:
            break
        except (SystemExit, KeyboardInterrupt) as error:
            print(f"a task of the agent raised {type(error).__name__}; the host goes on", file=sys.stderr)
    _end(0)


def _end(code):
    """Ends at once: threads of sessions that never end must not hold the process."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)
