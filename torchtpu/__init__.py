"""torchtpu: `tpu` as a PyTorch device, with every operator lowered to JAX and run through PJRT.

PyTorch finds this package by its entry point (group ``torch.backends``), so a plain ``import torch``
makes ``torch.device("tpu")`` work. JAX is imported when the device is first used.
"""

__version__ = "0.1.0"

__all__ = ["config", "metrics"]


def _autoload() -> None:
    """Register the device. PyTorch calls this at the end of ``import torch``."""
    from torchtpu import device_module

    device_module.register()


def __getattr__(name: str):
    import importlib

    if name == "config":
        return importlib.import_module("torchtpu.config").config
    if name == "metrics":
        return importlib.import_module("torchtpu.metrics")
    raise AttributeError(f"module 'torchtpu' has no attribute {name!r}")
