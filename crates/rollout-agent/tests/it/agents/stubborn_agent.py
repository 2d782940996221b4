"""Agents that do not end by themselves."""

import asyncio
import os
import signal
import threading
import time
import urllib.request

from miles.utils.http_utils import post


async def arrive(base_url):
    await post(f"{base_url}/v1/chat/completions", {"pid": os.getpid()})


def arrive_sync(base_url):
    request = urllib.request.Request(
        f"{base_url}/v1/chat/completions",
        data=b'{"pid": %d}' % os.getpid(),
        headers={"content-type": "application/json"},
    )
    urllib.request.urlopen(request).read()


async def polite(base_url):
    await arrive(base_url)
    await asyncio.Event().wait()


async def swallowing(base_url):
    await arrive(base_url)
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass


async def blocking_the_loop(base_url):
    await arrive(base_url)
    time.sleep(3600)


async def stopping_its_process(base_url):
    await arrive(base_url)
    os.kill(os.getpid(), signal.SIGSTOP)


def blocking_a_thread(base_url):
    arrive_sync(base_url)
    threading.Event().wait(3600)


def busy_thread(base_url):
    arrive_sync(base_url)
    while True:
        time.sleep(0.01)


async def either(base_url, metadata):
    if metadata.get("stubborn"):
        await swallowing(base_url)
    go = os.path.join(os.environ["GIVEN_DIR"], "go")
    while not os.path.exists(go):
        await asyncio.sleep(0.01)
