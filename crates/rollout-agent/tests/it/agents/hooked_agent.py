"""The hook ends the work of all sessions, by an object that lives in their event loop."""

import asyncio
import os

from miles.utils.http_utils import post

stopped = asyncio.Event()
hook_calls = 0
seen = {}


async def run(base_url, prompt, request_kwargs, metadata):
    await post(f"{base_url}/v1/chat/completions", {"messages": prompt})
    mine = asyncio.get_running_loop()
    await stopped.wait()
    return {"hook_calls": hook_calls, "same_process": seen["pid"] == os.getpid(), "same_loop": seen["loop"] is mine, "args": seen["args"]}


async def abort(args):
    global hook_calls
    hook_calls += 1
    seen.update(pid=os.getpid(), loop=asyncio.get_running_loop(), args=vars(args))
    stopped.set()
    # Long enough that the sessions return before they are cancelled.
    await asyncio.sleep(0.2)
