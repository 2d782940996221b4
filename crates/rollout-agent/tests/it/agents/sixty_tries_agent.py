"""One turn that works, then one that is refused, and tried again and again by a client that does not look at the answer."""

import asyncio

from miles.utils.http_utils import post


async def run(base_url, prompt):
    await post(f"{base_url}/v1/chat/completions", {"messages": prompt})
    for _ in range(60):
        try:
            await post(f"{base_url}/v1/chat/completions", {"messages": prompt}, max_retries=1)
        except Exception:
            await asyncio.sleep(1)
        else:
            await asyncio.sleep(0.01)
