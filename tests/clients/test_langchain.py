"""LangChain's client."""

import unittest

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

import task
import words
from ways import IN_ONE_PIECE, FourWays


class LangChain(FourWays, unittest.TestCase):
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


class LangChainInOnePiece(LangChain):
    """The same with an engine whose stream cannot be recorded."""

    flags = IN_ONE_PIECE
