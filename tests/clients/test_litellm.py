"""The library litellm, which most agent frameworks stand on."""

import unittest

import litellm

import task
import words
from ways import IN_ONE_PIECE, FourWays

litellm.suppress_debug_info = True


def ask(base_url, messages, stream):
    answer = litellm.completion(
        model="openai/any",
        api_base=base_url,
        api_key="EMPTY",
        messages=messages,
        tools=[task.TOOL],
        stream=stream,
        max_retries=2,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    )
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer


class LiteLLM(FourWays, unittest.TestCase):
    def run_task(self, stream, lose):
        session, base_url = self.bed.session()
        messages = [{"role": "user", "content": task.QUESTION}]
        for turn in range(task.TURNS):
            if lose and turn == 1:
                self.bed.agents.lose_next_answer()
            answer = ask(base_url, messages, stream)
            self.assertGreater(answer.usage.completion_tokens, 0)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            calls = message.tool_calls or []
            self.assertEqual(len(calls), [2, 1, 0][turn])
            for call in calls:
                result = task.calculator(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        self.assertEqual(messages[-1]["content"], task.ANSWER)
        self.assertEqual(len(self.bed.agents.chats()), task.TURNS + lose)
        words.check(self, self.bed, session, task.TURNS)


class LiteLLMInOnePiece(LiteLLM):
    """The same with an engine whose stream cannot be recorded."""

    flags = IN_ONE_PIECE
