"""The ways in which a client that streams does its task."""

import task
from bed import Bed

# An engine whose stream can be recorded, and one whose stream cannot: it does not say what it is.
STREAMS = ("--time-scale", "100")
IN_ONE_PIECE = (*STREAMS, "--fault", "Status500@/model_info")


class FourWays:
    """Streamed or not, with and without an answer that is lost on its way. A client says how it does it in `run_task(stream, lose)`."""

    flags = STREAMS

    def setUp(self):
        self.bed = Bed(task.SCRIPT, *self.flags)
        self.addCleanup(self.bed.close)

    def test_plain(self):
        self.run_task(stream=False, lose=False)

    def test_plain_with_a_lost_answer(self):
        self.run_task(stream=False, lose=True)

    def test_streamed(self):
        self.run_task(stream=True, lose=False)

    def test_streamed_with_a_lost_answer(self):
        self.run_task(stream=True, lose=True)
