"""Ends its whole process when it is told to; else it waits for a file, as others of its process may."""

import os

import stubborn_agent


async def run(base_url, metadata):
    if metadata.get("deadly"):
        os._exit(3)
    await stubborn_agent.either(base_url, metadata)
