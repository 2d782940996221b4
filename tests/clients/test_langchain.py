"""LangChain's client."""

import unittest

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

import task
import words
from bed import Bed


class LangChain(unittest.TestCase):
    flags = ("--time-scale", "100")

    def setUp(self):
        self.bed = Bed(task.SCRIPT, *self.flags)
        self.addCleanup(self.bed.close)

    def run_task(self, stream, lose):
        session, base_url = self.bed.session()
        model = ChatOpenAI(base_url=base_url, api_key="EMPTY", model="any", max_retries=2, stream_usage=True)
        model = model.bind_tools([task.TOOL])
        messages = [HumanMessage(task.QUESTION)]
        for turn in range(task.TURNS):
            if lose and turn == 1:
                self.bed.agents.lose_next_answer()
            if stream:
                answer = None
                for chunk in model.stream(messages):
                    answer = chunk if answer is None else answer + chunk
            else:
                answer = model.invoke(messages)
            self.assertGreater(answer.usage_metadata["output_tokens"], 0)
            messages.append(answer)
            self.assertEqual(len(answer.tool_calls), [2, 1, 0][turn])
            for call in answer.tool_calls:
                messages.append(ToolMessage(task.calculator(call["args"]), tool_call_id=call["id"]))
        self.assertEqual(messages[-1].content, task.ANSWER)
        self.assertEqual(len(self.bed.agents.chats()), task.TURNS + lose)
        words.check(self, self.bed, session, task.TURNS)

    def test_plain(self):
        self.run_task(stream=False, lose=False)

    def test_plain_with_a_lost_answer(self):
        self.run_task(stream=False, lose=True)

    def test_streamed(self):
        self.run_task(stream=True, lose=False)

    def test_streamed_with_a_lost_answer(self):
        self.run_task(stream=True, lose=True)


class LangChainInOnePiece(LangChain):
    """The same with an engine whose stream cannot be recorded."""

    flags = ("--time-scale", "100", "--fault", "Status500@/model_info")
