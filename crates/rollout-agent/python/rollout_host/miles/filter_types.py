"""Stand-in for `miles.rollout.filter_hub.base_types`."""

import dataclasses
from typing import Optional


@dataclasses.dataclass
class DynamicFilterOutput:
    """Whether a group is kept, and why not."""

    keep: bool
    reason: Optional[str] = None
