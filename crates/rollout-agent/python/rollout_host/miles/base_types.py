"""Stand-in for `miles.rollout.base_types`: the shapes of generate functions."""

import dataclasses
from typing import Any

from rollout_host import stand_ins


@dataclasses.dataclass(frozen=True)
class GenerateFnInput:
    """What a generate function gets."""

    state: Any
    sample: Any
    sampling_params: dict
    evaluation: bool = False

    @property
    def args(self):
        return self.state.args


@dataclasses.dataclass
class GenerateFnOutput:
    """What it gives: one sample or a list of them."""

    samples: Any


def __getattr__(name):
    raise stand_ins.missing(__name__, name)
