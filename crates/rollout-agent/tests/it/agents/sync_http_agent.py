"""A sync agent that runs an event loop per request."""

import asyncio
import gc
import os

from miles.utils.http_utils import post


def run(base_url, prompt):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        reply = asyncio.run(post(f"{base_url}/v1/chat/completions", {"messages": prompt}))
    gc.collect()
    return {"reply": reply["choices"][0]["message"]["content"], "more": len(os.listdir("/proc/self/fd")) - before}
