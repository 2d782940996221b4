from miles.utils.http_utils import post


async def run(base_url, prompt, request_kwargs, metadata, **kw):
    assert not kw, kw
    reply = await post(f"{base_url}/v1/chat/completions", {"model": "default", "messages": prompt, **request_kwargs})
    return {"reward": 1.0, "answer": reply["choices"][0]["message"]["content"], "seen": sorted(metadata)}
