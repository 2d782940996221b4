"""Stand-ins for the few modules of Miles that plug-ins import, for images in which Miles is not installed.

The finder sits at the end of `sys.meta_path`: a real Miles is found first, and then nothing here is used.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "miles")

_MODULES = {
    "miles.rollout.base_types": "base_types.py",
    "miles.rollout.filter_hub.base_types": "filter_types.py",
    "miles.utils.http_utils": "http_utils.py",
    "miles.utils.types": "types.py",
}
_PACKAGES = {"miles", "miles.rollout", "miles.rollout.filter_hub", "miles.utils"}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in _PACKAGES:
            spec = importlib.machinery.ModuleSpec(fullname, loader=None, is_package=True)
            spec.submodule_search_locations = []
            return spec
        file = _MODULES.get(fullname)
        # `path` is the parent's `__path__`: ours is empty, that of a real (part of) Miles is not, and then it is not ours to fill in.
        if file is None or path is None or len(list(path)) > 0:
            return None
        return importlib.util.spec_from_file_location(fullname, os.path.join(_HERE, file))


def install():
    """Adds the finder once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def missing(module, name):
    """The error for a name that a stand-in does not have."""
    return AttributeError(
        f"{module}.{name} is not provided by the stand-in of the Python host; install Miles in the image to use it"
    )
