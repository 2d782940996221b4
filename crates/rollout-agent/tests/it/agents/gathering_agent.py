"""Waits until sixteen sessions are there: they can only meet in one event loop."""

import asyncio
import os

EXPECTED = 16
arrived = 0
everybody = asyncio.Event()


async def run(**kw):
    global arrived
    arrived += 1
    if arrived == EXPECTED:
        everybody.set()
    await everybody.wait()
    return {"together": arrived, "pid": os.getpid()}
