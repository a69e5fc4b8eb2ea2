"""``torch.tpu``: the device's Python module, and its registration with PyTorch.

Importing this module imports no JAX. The operators are bound when the first tpu tensor is made.
"""

from __future__ import annotations

import contextlib
import threading

import torch

from torchtpu import autocast, metrics, upstream_patches
from torchtpu.errors import PlatformError
from torchtpu.random import default_generator
from torchtpu.runtime import client, topology
from torchtpu.runtime.stream import Event, Stream
from torchtpu.runtime.stream import synchronize as _synchronize

_lock = threading.RLock()
_operators_bound = False
_bootstrap: torch.library.Library | None = None
_host_library: torch.library.Library | None = None


class TpuModule:
    """What ``torch.tpu`` offers; named and behaving as in ``torch.cuda``."""

    Stream = Stream
    Event = Event
    __name__ = "torch.tpu"

    def __init__(self):
        self._default_stream = Stream()
        self._peak_bytes = 0

    def __repr__(self) -> str:
        return "<module 'torch.tpu' from torchtpu>"

    # -- device

    def is_available(self) -> bool:
        """Whether the device computes here. True also on the CPU plugin: see get_device_name()."""
        return True

    def is_initialized(self) -> bool:
        return client.is_started()

    @property
    def _initialized(self) -> bool:
        """What torch.utils.checkpoint and fork_rng ask before they save the random state."""
        return client.is_started()

    def init(self) -> None:
        """Start the PJRT client now rather than at first use."""
        bind_operators()
        client.device()

    def _lazy_init(self) -> None:
        self.init()

    def device_count(self) -> int:
        """1: a process drives one chip. Start one process for each chip."""
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device) -> None:
        """Accepts device 0, "tpu" and "tpu:0". Raises RuntimeError for another index, ValueError for
        another kind of device."""
        index = _device_index(device)
        if index != 0:
            raise RuntimeError(
                f"tpu:{index} does not exist: a process drives one TPU chip, tpu:0. "
                "Start one process for each chip."
            )

    @contextlib.contextmanager
    def device(self, device):
        """Context manager; only device 0 exists."""
        if device is not None and _device_index(device) >= 0:
            self.set_device(device)
        yield

    def _exchange_device(self, device) -> int:
        return 0

    def _maybe_exchange_device(self, device) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return client.is_in_bad_fork()

    def synchronize(self, device=None) -> None:
        """Wait until all submitted work is done."""
        self._check(device)
        if client.is_started():
            _synchronize()

    def get_device_name(self, device=None) -> str:
        """E.g. "TPU v5e". On another PJRT platform the name says that it is not a TPU."""
        self._check(device)
        return topology.device_name()

    def get_device_properties(self, device=None) -> topology.DeviceProperties:
        self._check(device)
        return topology.device_properties()

    def get_device_capability(self, device=None):
        """What dtypes the device computes with."""
        self._check(device)
        from torchtpu import dtypes

        return {"supported_dtypes": dtypes.supported()}

    def is_bf16_supported(self) -> bool:
        return True

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def _check(self, device) -> None:
        if device is not None:
            self.set_device(device)

    # -- memory

    def memory_stats(self, device=None) -> dict[str, int]:
        """Bytes: "bytes_in_use", "peak_bytes_in_use", ... from the PJRT allocator; where it reports
        none (CPU plugin), "bytes_in_use" is the sum over live arrays and "peak_bytes_in_use" the
        largest sum that a call of this or of the functions below has seen."""
        self._check(device)
        stats = topology.memory_stats()
        if "bytes_in_use" not in stats:
            in_use = sum(a.nbytes for a in client.live_arrays())
            self._peak_bytes = max(self._peak_bytes, in_use)
            stats["bytes_in_use"] = in_use
            stats["peak_bytes_in_use"] = self._peak_bytes
        return stats

    def memory_allocated(self, device=None) -> int:
        """Bytes of device memory in use."""
        return self.memory_stats(device)["bytes_in_use"]

    def max_memory_allocated(self, device=None) -> int:
        """Peak bytes of device memory in use; see memory_stats for what "peak" means where."""
        return self.memory_stats(device)["peak_bytes_in_use"]

    def memory_reserved(self, device=None) -> int:
        stats = self.memory_stats(device)
        return stats.get("bytes_reserved", stats["bytes_in_use"])

    def max_memory_reserved(self, device=None) -> int:
        stats = self.memory_stats(device)
        return stats.get("peak_bytes_reserved", stats["peak_bytes_in_use"])

    def reset_peak_memory_stats(self, device=None) -> None:
        """Only the observed peak of the CPU plugin can be reset; PJRT's own cannot."""
        self._peak_bytes = 0

    def mem_get_info(self, device=None) -> tuple[int, int]:
        """(free, total) bytes. Raises RuntimeError where PJRT does not know the total."""
        stats = self.memory_stats(device)
        if "bytes_limit" not in stats:
            raise RuntimeError(
                f"the PJRT platform {client.platform()!r} does not report its memory size"
            )
        return stats["bytes_limit"] - stats["bytes_in_use"], stats["bytes_limit"]

    def empty_cache(self) -> None:
        """Nothing to do: PJRT frees an array when its last tensor goes."""

    # -- random numbers

    def manual_seed(self, seed: int) -> None:
        default_generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def seed(self) -> int:
        """Seed from the system's randomness."""
        seed = torch.randint(2**62, (), generator=_system_generator()).item()
        default_generator.manual_seed(seed)
        return seed

    seed_all = seed

    def initial_seed(self) -> int:
        return default_generator.initial_seed

    def get_rng_state(self, device="tpu") -> torch.Tensor:
        """uint8[16] CPU tensor."""
        self._check(device)
        return default_generator.get_state()

    def set_rng_state(self, new_state: torch.Tensor, device="tpu") -> None:
        self._check(device)
        default_generator.set_state(new_state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state()]

    def set_rng_state_all(self, new_states) -> None:
        (state,) = new_states
        self.set_rng_state(state)

    # -- streams

    def current_stream(self, device=None) -> Stream:
        return self._default_stream

    def default_stream(self, device=None) -> Stream:
        return self._default_stream

    def set_stream(self, stream: Stream) -> None:
        """Nothing to do: all streams are the device's one queue."""

    def stream(self, stream: Stream | None):
        """Context manager: the stream itself."""
        return contextlib.nullcontext(stream)

    # -- counters

    @property
    def metrics(self):
        """torchtpu.metrics."""
        return metrics


def _system_generator() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator


def _device_index(device) -> int:
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "tpu":
        raise ValueError(f"expected a tpu device, got {device}")
    return device.index or 0


def bind_operators() -> None:
    """Fill the dispatch table (imports JAX). Called when the first tpu tensor is made."""
    global _operators_bound, _bootstrap
    with _lock:
        if _operators_bound:
            return
        from torchtpu import dispatch

        if _bootstrap is not None:
            _bootstrap._destroy()
            _bootstrap = None
        dispatch.register()
        _operators_bound = True


def _bootstrap_kernel(overload):
    def kernel(*args, **kwargs):
        bind_operators()
        return overload(*args, **kwargs)

    return kernel


def _pin_memory(self, device=None):
    """``Tensor.pin_memory()`` of a CPU tensor: a copy. Pinned pages are CUDA's; a copy to tpu reads
    ordinary memory. With CUDA in this process the memory is pinned for CUDA, as without torchtpu."""
    if torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda"):
        composite = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
        return torch.ops.aten._pin_memory.default.redispatch(composite, self, torch.device("cuda"))
    return self.clone()


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, _device_index) -> bool:
        return True

    def is_built(self) -> bool:
        return True


class _DeviceGuard(torch._C._acc.DeviceGuard):
    def type_(self):
        return torch._C._autograd.DeviceType.PrivateUse1


module = TpuModule()


def _owner(backend_name: str) -> str:
    """Who has taken PrivateUse1, for people: the device's name and where its module comes from."""
    if backend_name == "privateuseone":
        backend_name = "tpu"  # not renamed, but torch.tpu is there
    module = getattr(torch, backend_name, None)
    origin = getattr(module, "__file__", None) or getattr(module, "__name__", None)
    return repr(backend_name) + (f" ({origin})" if origin else "")


def register() -> None:
    """Make `tpu` a device of PyTorch. Raises PlatformError if another backend was first."""
    name = torch._C._get_privateuse1_backend_name()
    if name == "tpu" and getattr(torch, "tpu", None) is module:
        return
    if name != "privateuseone" or hasattr(torch, "tpu"):
        raise PlatformError(
            f"PyTorch has one slot for an outside device (PrivateUse1), and {_owner(name)} has "
            "taken it. torchtpu cannot be "
            "used beside it: uninstall the other package, or keep it from loading "
            "(TORCH_DEVICE_BACKEND_AUTOLOAD=0 loads no backend; then `import torchtpu; "
            "torchtpu._autoload()`)."
        )
    from torch.utils import backend_registration

    backend_registration._setup_privateuseone_for_python_backend(
        "tpu", backend_module=module, hook=_Hooks(), device_guard=_DeviceGuard()
    )
    autocast.register()
    upstream_patches.apply()
    global _bootstrap, _host_library
    _bootstrap = torch.library.Library("aten", "IMPL")
    for overload in (
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_strided.default,
    ):
        operator = overload.name().removeprefix("aten::")
        _bootstrap.impl(operator, _bootstrap_kernel(overload), "PrivateUse1")
    _host_library = torch.library.Library("aten", "IMPL")
    _host_library.impl("_pin_memory", _pin_memory, "CPU")
