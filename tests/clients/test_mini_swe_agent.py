"""The agent mini-swe-agent, whole: its loop, its model, its shell. It does not stream."""

import os
import tempfile
import unittest

import litellm
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

import words
from bed import Bed

litellm.suppress_debug_info = True

SCRIPT = r"""
- match: '(?s)two.*'
  role: tool
  reply: {tool_calls: [{name: bash, arguments: {command: 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat made.txt'}}]}
- match: '(?s)<returncode>0</returncode>.*'
  role: tool
  reply:
    content: Two things at once.
    tool_calls:
      - {name: bash, arguments: {command: 'cat made.txt'}}
      - {name: bash, arguments: {command: 'echo two'}}
- match: 'Make a file'
  reply:
    content: I make it.
    tool_calls: [{name: bash, arguments: {command: 'echo made by an agent > made.txt'}}]
"""


class MiniSweAgent(unittest.TestCase):
    def setUp(self):
        self.bed = Bed(SCRIPT, "--time-scale", "100")
        self.addCleanup(self.bed.close)

    def run_task(self, lose):
        session, base_url = self.bed.session()
        model = LitellmModel(
            model_name="openai/any",
            model_kwargs={"api_base": base_url, "api_key": "EMPTY"},
            cost_tracking="ignore_errors",
        )
        bed = self.bed

        class Agent(DefaultAgent):
            def query(self):
                if lose and self.n_calls == 1:
                    bed.agents.lose_next_answer()
                return super().query()

        with tempfile.TemporaryDirectory() as place:
            agent = Agent(
                model,
                LocalEnvironment(cwd=place),
                system_template="You use a shell.",
                instance_template="{{ task }}",
                step_limit=10,
                cost_limit=0,
            )
            result = agent.run("Make a file.")
            self.assertTrue(os.path.exists(os.path.join(place, "made.txt")))
        self.assertEqual(result["exit_status"], "Submitted")
        self.assertEqual(result["submission"].strip(), "made by an agent")
        self.assertEqual(len(self.bed.agents.chats()), 3 + lose)
        words.check(self, self.bed, session, 3)

    def test_plain(self):
        self.run_task(lose=False)

    def test_with_a_lost_answer(self):
        self.run_task(lose=True)


if __name__ == "__main__":
    unittest.main()
