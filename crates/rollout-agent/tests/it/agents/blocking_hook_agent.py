import asyncio
import time

from miles.utils.http_utils import post


async def run(base_url, prompt):
    await post(f"{base_url}/v1/chat/completions", {"messages": prompt})
    await asyncio.Event().wait()


async def abort(args):
    time.sleep(3600)
