"""The PJRT client and this process's device, started at first use; host-device transfers."""

from __future__ import annotations

import importlib.util
import os
import threading
import warnings

import numpy as np
import torch

from torchtpu import dtypes
from torchtpu.config import config, set_environment_default
from torchtpu.errors import PlatformError
from torchtpu.runtime.chips import tpu_device_files
from torchtpu.runtime.executable_cache import cache

_lock = threading.RLock()
_device = None
_is_bad_fork = False


def choose_platform() -> tuple[str, str]:
    """The PJRT platform to use (tpu, cpu or cuda) and, in words, why."""
    if config.platform:
        return config.platform, "TORCHTPU_PLATFORM asks for it"
    if not tpu_device_files():
        return "cpu", "no TPU found"
    if importlib.util.find_spec("libtpu") is None:
        return "cpu", "a TPU is there, but libtpu is not installed (pip install torchtpu[tpu])"
    return "tpu", "a TPU and libtpu were found"


FORK_MESSAGE = (
    "Cannot use the tpu device in a forked process: PJRT does not survive a fork. Use the 'spawn' "
    "start method, or touch the device only after the fork."
)


def _after_fork_in_child() -> None:
    """A child of a process whose client ran: whatever needs the client must ask for it, and fail."""
    global _device, _put, _is_bad_fork
    if _device is not None:
        _device = _put = None
        _is_bad_fork = True
        cache.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _start():
    global _device
    if _is_bad_fork:
        raise RuntimeError(FORK_MESSAGE)
    platform, reason = choose_platform()
    xrt = config.xrt_tpu_config
    if platform == "tpu":
        if xrt is not None:
            # One process drives one chip: libtpu must see this one only.
            set_environment_default("TPU_VISIBLE_CHIPS", str(xrt.ordinal))
            set_environment_default("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1")
            set_environment_default("TPU_PROCESS_BOUNDS", "1,1,1")
            set_environment_default("CLOUD_TPU_TASK_ID", str(xrt.task))
    else:
        # libtpu asks a cloud metadata server for a TPU that is not there, and waits.
        set_environment_default("TPU_SKIP_MDS_QUERY", "1")
    import jax

    if not jax.config.jax_platforms:
        jax.config.update("jax_platforms", "cpu" if platform == "cpu" else f"{platform},cpu")
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError as error:
        raise PlatformError(
            f"The PJRT platform {platform!r} could not be started ({reason}): {error}. "
            "Run `python -m torchtpu.doctor`, or set TORCHTPU_PLATFORM=cpu."
        ) from error
    ordinal = xrt.ordinal if xrt is not None else 0
    if platform == "tpu" and len(devices) == 1:
        ordinal = 0  # TPU_VISIBLE_CHIPS already left this process its one chip
    if ordinal >= len(devices):
        raise PlatformError(
            f"XRT_TPU_CONFIG asks for ordinal {ordinal}, but this host has {len(devices)} "
            f"device(s) on the PJRT platform {platform!r}. Use an ordinal below {len(devices)}."
        )
    # DataLoader workers are forked and touch CPU tensors only; the device itself refuses to work in a
    # child (above).
    warnings.filterwarnings(
        "ignore", message=r"os\.fork\(\) was called.*JAX is multithreaded", category=RuntimeWarning
    )
    _device = devices[ordinal]


def device():
    """The JAX device that `tpu:0` stands for. Starts JAX at the first call."""
    if _device is None:
        with _lock:
            if _device is None:
                _start()
    return _device


def is_started() -> bool:
    """Whether the PJRT client runs already."""
    return _device is not None


def is_in_bad_fork() -> bool:
    """Whether this process was forked from one whose client ran: PJRT does not survive a fork."""
    return _is_bad_fork


def platform() -> str:
    """The PJRT platform in use: "tpu", "cpu" or "cuda"."""
    if _device is None:
        return choose_platform()[0]
    return "cuda" if _device.platform == "gpu" else _device.platform


def describe() -> str:
    """On what the device runs, for people: never lets a CPU pass for a TPU."""
    kind = platform()
    if kind == "tpu":
        return f"tpu (PJRT platform: tpu, {device().device_kind})"
    if kind == "cuda":
        return f"tpu (PJRT platform: cuda, {device().device_kind}: these times are a GPU's)"
    why = choose_platform()[1] if not config.platform else "no TPU used"
    return f"tpu (PJRT platform: cpu, {why}: these times say nothing about a TPU)"


def _device_put(array: np.ndarray):
    import jax
    from jax.sharding import SingleDeviceSharding

    with jax.enable_x64(True):  # else JAX narrows 64-bit values
        return jax.device_put(array, SingleDeviceSharding(device()))


def _fast_device_put():
    """A ten times cheaper device_put, where this JAX has the internal entry point for it."""
    try:
        import jax
        from jax._src.lib import xla_client

        put = xla_client.batched_device_put
        target = device()
        sharding = jax.sharding.SingleDeviceSharding(target)

        def fast(array: np.ndarray):
            with jax.enable_x64(True):  # else JAX narrows 64-bit values
                aval = jax.core.ShapedArray(array.shape, array.dtype)
                return put(aval, sharding, [array], [target], True)

        probe = np.array([2**40 + 1], np.int64)
        return fast if (np.asarray(fast(probe)) == probe).all() else _device_put
    except Exception:  # an internal name moved: the public way is slower, and right
        return _device_put


_put = None


def from_numpy(array: np.ndarray):
    """A device array with the contents of `array`, at once and without narrowing.

    The caller must not change `array` afterwards: the CPU plugin may use its memory as it is.
    """
    global _put
    if _put is None:
        _put = _fast_device_put()
    return _put(array)


def from_cpu_tensor(tensor: torch.Tensor):
    """A device array with a copy of a dense CPU tensor's values, in its logical shape."""
    numpy_dtype = dtypes.to_jax(tensor.dtype)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    copied = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor)
    if tensor.numel() == 0:
        return from_numpy(np.zeros(tuple(tensor.shape), numpy_dtype))
    flat = copied.reshape(-1).view(torch.uint8).numpy().view(numpy_dtype)
    return from_numpy(flat.reshape(tuple(tensor.shape)))


def to_cpu_tensor(array, dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor with a copy of a device array's values. Waits for the array."""
    if _is_bad_fork:
        raise RuntimeError(FORK_MESSAGE)
    host = np.asarray(array)
    result = torch.empty(host.shape, dtype=dtype, device="cpu")
    if host.size:
        flat = np.ascontiguousarray(host).reshape(-1).view(np.uint8)
        result.reshape(-1).view(torch.uint8).numpy()[...] = flat
    return result


def live_arrays() -> list:
    """Every live array on this process's device."""
    if not is_started():
        return []
    import jax

    return [a for a in jax.live_arrays() if _device in a.sharding.device_set]


def block_until_ready(arrays) -> None:
    """Wait until all these arrays are computed; one that was donated meanwhile is done with."""
    for array in arrays:
        if not array.is_deleted():
            try:
                array.block_until_ready()
            except RuntimeError:
                if not array.is_deleted():
                    raise
