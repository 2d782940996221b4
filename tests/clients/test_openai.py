"""The client of OpenAI."""

import unittest

import openai

import task
import words
from bed import Bed, eventually
from ways import IN_ONE_PIECE, FourWays


def ask(client, messages, stream, **more):
    """One turn: the assistant's message, and the usage."""
    request = dict(model="any", messages=messages, tools=[task.TOOL], **more)
    if not stream:
        answer = client.chat.completions.create(**request)
        return answer.choices[0].message.model_dump(exclude_none=True), answer.usage
    with client.chat.completions.stream(**request, stream_options={"include_usage": True}) as events:
        for _ in events:
            pass
        answer = events.get_final_completion()
    message = answer.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})
    for call in message.get("tool_calls") or []:
        call["function"].pop("parsed_arguments", None)
    return message, answer.usage


def solve(test, client, stream, before_turn=lambda turn: None):
    messages = [{"role": "user", "content": task.QUESTION}]
    for turn in range(task.TURNS):
        before_turn(turn)
        message, usage = ask(client, messages, stream)
        test.assertGreater(usage.completion_tokens, 0)
        test.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        messages.append(message)
        calls = message.get("tool_calls") or []
        test.assertEqual(len(calls), [2, 1, 0][turn])
        for call in calls:
            result = task.calculator(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    test.assertEqual(messages[-1]["content"], task.ANSWER)


class OpenAI(FourWays, unittest.TestCase):
    def client(self, base_url, **more):
        client = openai.OpenAI(base_url=base_url, api_key="EMPTY", **more)
        self.addCleanup(client.close)
        return client

    def run_task(self, stream, lose):
        session, base_url = self.bed.session()

        def before_turn(turn):
            if lose and turn == 1:
                self.bed.agents.lose_next_answer()

        solve(self, self.client(base_url), stream, before_turn)
        sent = self.bed.agents.chats()
        self.assertEqual(len(sent), task.TURNS + lose)
        if lose:
            self.assertEqual(sent[2].headers["x-stainless-retry-count"], "1")
            self.assertEqual(sent[2].body, sent[1].body)
        words.check(self, self.bed, session, task.TURNS)
        asked = [chat.request["stream"] for chat in self.bed.engine.chats()]
        self.assertEqual(set(asked), {stream and self.streams})

    # Whether the engine is asked for streams.
    streams = True

    def test_options(self):
        session, base_url = self.bed.session()
        client = self.client(base_url)
        user = [{"role": "user", "content": "Name a colour."}]
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        client.chat.completions.create(
            model="any",
            messages=user,
            max_tokens=200,
            response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
        )
        forced = client.chat.completions.create(
            model="any", messages=user, tools=[task.TOOL], tool_choice="required", parallel_tool_calls=False
        )
        self.assertEqual(forced.choices[0].message.tool_calls[0].function.name, "calculator")
        first, second = (chat.request for chat in self.bed.engine.chats())
        self.assertEqual(first["response_format"]["json_schema"]["schema"], schema)
        self.assertEqual(second["tool_choice"], "required")
        self.assertIs(second["parallel_tool_calls"], False)
        with self.assertRaisesRegex(openai.BadRequestError, "n must be 1"):
            client.chat.completions.create(model="any", messages=user, n=2)
        self.assertEqual(len(self.bed.agents.chats()), 3, "a refusal is not repeated")
        self.assertEqual(len(client.models.list().data), 1)


class OpenAIInOnePiece(OpenAI):
    """The same with an engine whose stream cannot be recorded."""

    flags = IN_ONE_PIECE
    streams = False


class Fence(unittest.TestCase):
    """A fence ends the loop of a client that would try again and again."""

    def setUp(self):
        self.bed = Bed(task.SCRIPT, "--decode-tokens-per-second", "2")
        self.addCleanup(self.bed.close)
        self.session, base_url = self.bed.session(job="swe")
        self.client = openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=5)
        self.addCleanup(self.client.close)

    def ask(self, **more):
        user = [{"role": "user", "content": "Say it at length."}]
        return self.client.chat.completions.create(model="any", messages=user, **more)

    def refused(self):
        before = len(self.bed.agents.chats())
        for stream in (False, True):
            with self.assertRaises(openai.APIStatusError) as refused:
                self.ask(stream=stream)
            self.assertEqual(refused.exception.status_code, 410)
            self.assertEqual(refused.exception.code, "rollout_closed")
        self.assertEqual(len(self.bed.agents.chats()) - before, 2, "nothing is tried again")

    def test_before_a_turn(self):
        self.bed.call("POST", "/fence", {"job": "swe"})
        self.refused()
        self.assertEqual(self.bed.engine.chats(), [])

    def test_in_a_stream(self):
        reasons = []
        for chunk in self.ask(stream=True):
            if not reasons:
                self.assertEqual(self.bed.running(), 1)
                report = self.bed.call("POST", "/fence", {"job": "swe"})
                self.assertEqual((report["left"], report["unproven"]), (0, 0))
                self.assertEqual(self.bed.running(), 0)
            reasons += [choice.finish_reason for choice in chunk.choices]
        self.assertEqual([reason for reason in reasons if reason], ["abort"])
        self.refused()
        (sample,) = self.bed.collect(self.session)["samples"]
        self.assertEqual(sample["status"], "aborted")
        eventually("nothing runs at the engine", lambda: self.bed.running() == 0)
        self.assertEqual(len(self.bed.engine.chats()), 1)

    def test_a_session_that_is_deleted(self):
        seen = []
        with self.assertRaises(openai.APIError) as broken:
            for chunk in self.ask(stream=True):
                if not seen:
                    self.bed.call("DELETE", f"/sessions/{self.session}")
                seen.append(chunk)
        self.assertEqual(broken.exception.code, "rollout_closed")
        eventually("nothing runs at the engine", lambda: self.bed.running() == 0)
        self.assertEqual(len(self.bed.agents.chats()), 1, "nothing is tried again")


class KeepAlive(unittest.TestCase):
    """A generation that lasts longer than the client waits for a byte."""

    def setUp(self):
        flags = ("--decode-tokens-per-second", "2", "--fault", "Status500@/model_info")
        self.bed = Bed(task.SCRIPT, *flags)
        self.addCleanup(self.bed.close)
        self.session, base_url = self.bed.session(proxied=False)
        # Comments come every 5 seconds.
        self.client = openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=0, timeout=7)
        self.addCleanup(self.client.close)
        self.request = dict(model="any", messages=[{"role": "user", "content": "Say it at length."}])

    def test_a_stream_outlives_the_read_timeout(self):
        with self.assertRaises(openai.APITimeoutError):
            self.client.chat.completions.create(**self.request)
        eventually("the slot is free", lambda: self.bed.running() == 0)
        chunks = list(self.client.chat.completions.create(**self.request, stream=True))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")
        self.assertEqual(self.bed.collect(self.session)["session_metadata"]["turns"], 1)


if __name__ == "__main__":
    unittest.main()
