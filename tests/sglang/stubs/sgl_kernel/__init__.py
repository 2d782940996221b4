"""Stands in for the compiled kernels, which exist for GPUs and for CPUs with AMX only.

SGLang imports names from here at start. On the `torch_native` backend it calls none of them; one that is called says its name.
"""

__version__ = "0.4.10"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args, **_kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in on this CPU")

    missing.__name__ = name
    return missing
