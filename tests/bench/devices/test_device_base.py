"""What all devices do: placing, modes, waiting, precision."""

from __future__ import annotations

import pytest
import torch

from bench.devices.base import DeviceOptions, ParametersUntied
from bench.devices.cpu import CpuDevice
from bench.devices.cuda import CudaDevice
from bench.options import UsageError


@pytest.fixture
def cpu():
    device = CpuDevice(DeviceOptions("eager", "fp32"))
    device.start()
    return device


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.decoder = torch.nn.Linear(4, 5, bias=False)
        self.decoder.weight = self.embedding.weight


class Untying(Tied):
    """Moves as some backends do: every parameter anew."""

    def to(self, *_args):
        self.decoder.weight = torch.nn.Parameter(self.decoder.weight.detach().clone())
        return self


def test_a_model_keeps_its_shared_weights(cpu):
    placed = cpu.place(Tied())
    assert placed.decoder.weight is placed.embedding.weight


def test_a_move_that_parts_shared_weights_is_refused(cpu):
    with pytest.raises(ParametersUntied, match=r"decoder\.weight = embedding\.weight"):
        cpu.place(Untying())


def test_a_mode_that_is_not_there_is_refused():
    device = CpuDevice(DeviceOptions("capture", "fp32"))
    with pytest.raises(
        UsageError, match=r"device\.mode=capture: not available on cpu; valid: eager"
    ):
        device.check_mode()


def test_another_precision_leaves_the_device_as_it_was(cpu):
    other = cpu.with_precision("bf16")
    assert (cpu.options.precision, other.options.precision) == ("fp32", "bf16")
    with other.autocast():
        assert torch.is_autocast_enabled("cpu")
    with cpu.autocast():
        assert not torch.is_autocast_enabled("cpu")


def test_the_loader_keeps_order_and_is_lazy(cpu):
    made = []

    def batches():
        for n in range(10):
            made.append(n)
            yield {"x": torch.tensor(n)}

    loader = cpu.loader(batches())
    assert [int(next(loader)["x"]) for _ in range(3)] == [0, 1, 2]
    assert made == [0, 1, 2]


def test_the_cpu_has_no_memory_of_its_own(cpu):
    reading = cpu.peak_memory_bytes()
    assert reading.value is None
    assert "host_peak_memory_bytes" in reading.method


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_not_there():
    with pytest.raises(UsageError, match=r"device=cuda: .*CUDA"):
        CudaDevice(DeviceOptions("eager", "fp32")).start()
