"""Waits for a file that the test writes."""

import asyncio
import os

from miles.utils.http_utils import post


async def run(base_url, prompt):
    await post(f"{base_url}/v1/chat/completions", {"messages": prompt})
    go = os.path.join(os.environ["GIVEN_DIR"], "go")
    while not os.path.exists(go):
        await asyncio.sleep(0.01)
