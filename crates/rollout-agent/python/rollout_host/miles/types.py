"""Stand-in for `miles.utils.types`: `Sample`, with the fields of the training record."""

import copy
import dataclasses
import enum
from typing import Any, Optional

from rollout_host import stand_ins


@dataclasses.dataclass
class Sample:
    """One sample: `tokens` is the prompt followed by `response_length` response ids."""

    class Status(enum.Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    @dataclasses.dataclass
    class SpecInfo:
        spec_accept_token_num: int = 0
        spec_draft_token_num: int = 0
        spec_verify_ct: int = 0
        completion_token_num: int = 0

        @property
        def spec_accept_rate(self):
            return self.spec_accept_token_num / self.spec_draft_token_num if self.spec_draft_token_num else 0.0

        @property
        def spec_accept_length(self):
            return self.completion_token_num / self.spec_verify_ct if self.spec_verify_ct else 0.0

    @dataclasses.dataclass
    class PrefixCacheInfo:
        cached_tokens: int = 0
        total_prompt_tokens: int = 0

        @property
        def prefix_cache_hit_rate(self):
            return self.cached_tokens / self.total_prompt_tokens if self.total_prompt_tokens else 0.0

    group_index: Optional[int] = None
    index: Optional[int] = None
    rollout_id: Optional[int] = None
    prompt: Any = ""
    tokens: list = dataclasses.field(default_factory=list)
    multimodal_inputs: Optional[dict] = None
    multimodal_train_inputs: Optional[dict] = None
    response: str = ""
    response_length: int = 0
    label: Any = None
    reward: Any = None
    loss_mask: Optional[list] = None
    weight_versions: list = dataclasses.field(default_factory=list)
    rollout_log_probs: Optional[list] = None
    rollout_routed_experts: Any = None
    rollout_indexer_topk: Any = None
    remove_sample: bool = False
    teacher_log_probs: Optional[list] = None
    opd_reverse_kl: Optional[list] = None
    status: Status = Status.PENDING
    metadata: dict = dataclasses.field(default_factory=dict)
    generate_function_path: Optional[str] = None
    train_metadata: Optional[dict] = None
    adapter: Any = None
    reward_spec: Any = None
    routing_key: Optional[str] = None
    non_generation_time: float = 0.0
    spec_info: SpecInfo = dataclasses.field(default_factory=SpecInfo)
    prefix_cache_info: PrefixCacheInfo = dataclasses.field(default_factory=PrefixCacheInfo)

    def to_dict(self):
        """All attributes, also those that are no fields; `status` as its text, the counters as maps."""
        values = dict(self.__dict__)
        values["status"] = self.status.value
        values["spec_info"] = dataclasses.asdict(self.spec_info)
        values["prefix_cache_info"] = dataclasses.asdict(self.prefix_cache_info)
        return values

    @classmethod
    def from_dict(cls, values):
        """The opposite of `to_dict`; unknown keys become attributes."""
        values = dict(values)
        sample = cls()
        sample.status = cls.Status(values.pop("status"))
        sample.spec_info = _counters(cls.SpecInfo, values.pop("spec_info", None))
        sample.prefix_cache_info = _counters(cls.PrefixCacheInfo, values.pop("prefix_cache_info", None))
        for name, value in values.items():
            setattr(sample, name, copy.copy(value))
        return sample

    def get_reward_value(self, args):
        """The scalar reward: the entry that `args.reward_key` names, when the reward is a map."""
        key = getattr(args, "reward_key", None)
        return self.reward[key] if key else self.reward

    @property
    def effective_response_length(self):
        return sum(self.loss_mask) if self.loss_mask is not None else self.response_length


def _counters(kind, values):
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in (values or {}).items() if name in known})


def __getattr__(name):
    raise stand_ins.missing(__name__, name)
