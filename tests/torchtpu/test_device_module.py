"""``torch.tpu``, ``torch.accelerator`` and the conveniences that PyTorch gives a device."""

import pytest
import torch
import torch.utils.checkpoint
from torch import nn


def test_the_one_device_is_there():
    assert torch.tpu.is_available()
    assert torch.tpu.device_count() == 1
    assert torch.tpu.current_device() == 0
    assert torch.device("tpu").type == "tpu"
    assert torch.empty(1, device="tpu").device == torch.device("tpu", 0)
    assert torch.get_device_module("tpu") is torch.tpu


@pytest.mark.parametrize("device", [0, "tpu", "tpu:0", torch.device("tpu"), torch.device("tpu", 0)])
def test_set_device_takes_the_one_device(device):
    torch.tpu.set_device(device)
    with torch.tpu.device(device):
        assert torch.tpu.current_device() == 0


@pytest.mark.parametrize(
    ("device", "error"),
    [(1, RuntimeError), (-1, RuntimeError), ("tpu:3", RuntimeError), ("cpu", ValueError)],
)
def test_set_device_refuses_any_other(device, error):
    with pytest.raises(error, match="tpu"):
        torch.tpu.set_device(device)


def test_accelerator_is_the_tpu():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.accelerator.device_count() == 1
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(0):
        x = torch.ones(4, device="tpu") + 1
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream() == torch.tpu.current_stream()
    torch.accelerator.current_stream().synchronize()
    assert x.tolist() == [2.0] * 4


def test_accelerator_memory_is_that_of_the_tpu():
    held = torch.ones(1024, 256, device="tpu") + 1
    accelerator = torch.accelerator
    assert accelerator.memory_allocated() >= held.nbytes
    assert accelerator.max_memory_allocated() >= held.nbytes
    assert accelerator.memory_reserved() >= held.nbytes
    assert accelerator.memory_stats()["bytes_in_use"] >= held.nbytes
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    if hasattr(accelerator, "empty_host_cache"):  # newer releases of PyTorch
        accelerator.empty_host_cache()


def test_name_and_properties_agree():
    properties = torch.tpu.get_device_properties()
    assert properties.name == torch.tpu.get_device_name() == torch.tpu.get_device_name("tpu:0")
    assert properties.platform in ("tpu", "cpu", "cuda")
    assert properties.total_memory >= 0
    assert torch.bfloat16 in torch.tpu.get_device_capability()["supported_dtypes"]
    assert torch.tpu.is_bf16_supported()


# -- moving ----------------------------------------------------------------------------------------


def test_tensors_move_by_tpu_and_know_it():
    x = torch.arange(3)
    y = x.tpu()
    assert (y.is_tpu, x.is_tpu, y.is_cpu, y.is_cuda) == (True, False, False, False)
    assert y.tpu() is y
    assert y.cpu().tolist() == [0, 1, 2]
    assert x.to("tpu", torch.float32).dtype == torch.float32


def test_modules_move_by_tpu_and_keep_their_parameters():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    tied = model[0].weight
    model.other = nn.Linear(2, 3)
    model.other.weight = tied
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert model.tpu() is model
    assert model[0].weight is tied is model.other.weight
    assert optimizer.param_groups[0]["params"][0] is tied
    assert all(t.is_tpu for t in (*model.parameters(), *model.buffers()))
    model.cpu()
    assert model[0].weight is tied
    assert not any(t.is_tpu for t in model.parameters())


def test_default_device_makes_tpu_tensors():
    torch.set_default_device("tpu")
    try:
        assert torch.get_default_device() == torch.device("tpu", 0)
        made = [torch.ones(2), torch.tensor([1, 2]), torch.rand(2), torch.arange(3)]
        assert nn.Linear(2, 2).weight.is_tpu
    finally:
        torch.set_default_device(None)
    assert all(t.is_tpu for t in made)
    with torch.device("tpu"):
        assert torch.zeros(1).is_tpu
    assert not torch.zeros(1).is_tpu


def test_tensors_of_two_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="tpu") + torch.ones(2)


# -- memory ------------------------------------------------------------------------------------------


def test_memory_counts_what_tensors_hold():
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    held = torch.ones(1024, 1024, device="tpu") + 1
    torch.tpu.synchronize()
    grown = torch.tpu.memory_allocated() - before
    assert 4 * 2**20 <= grown <= 16 * 2**20
    assert torch.tpu.max_memory_allocated() >= torch.tpu.memory_allocated() - 2**20
    stats = torch.tpu.memory_stats()
    assert stats["peak_bytes_in_use"] >= stats["bytes_in_use"] > 0
    del held
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() - before < grown


def test_peak_memory_starts_anew():
    if torch.tpu.get_device_properties().platform != "cpu":
        pytest.skip("PJRT's own peak cannot be reset")
    held = torch.ones(1024, 1024, device="tpu") + 1
    high = torch.tpu.max_memory_allocated()
    del held
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() < high


def test_free_memory_is_given_or_refused_in_words():
    if "bytes_limit" in torch.tpu.memory_stats():
        free, total = torch.tpu.mem_get_info()
        assert 0 <= free <= total
    else:
        with pytest.raises(RuntimeError, match="does not report its memory size"):
            torch.tpu.mem_get_info()


# -- random numbers ------------------------------------------------------------------------------------


def _draws():
    return [
        torch.rand(4, device="tpu").tolist(),
        torch.randn(4, device="tpu").tolist(),
        torch.randint(0, 100, (4,), device="tpu").tolist(),
        nn.functional.dropout(torch.ones(64, device="tpu"), 0.5).tolist(),
    ]


@pytest.mark.parametrize(
    "seed", [torch.manual_seed, torch.tpu.manual_seed, torch.tpu.manual_seed_all]
)
def test_a_seed_makes_draws_repeat(seed):
    seed(7)
    first = _draws()
    second = _draws()
    seed(7)
    assert _draws() == first
    assert first != second
    seed(8)
    assert _draws() != first
    assert torch.tpu.initial_seed() == 8


def test_dropout_differs_from_call_to_call():
    x = torch.ones(256, device="tpu")
    masks = [nn.functional.dropout(x, 0.5) for _ in range(2)]
    assert not torch.equal(*masks)


def test_the_random_state_can_be_kept_and_restored():
    torch.rand(3, device="tpu")
    state = torch.tpu.get_rng_state()
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    first = _draws()
    torch.tpu.set_rng_state(state)
    assert _draws() == first
    torch.tpu.set_rng_state_all([state])
    assert _draws() == first
    with pytest.raises(ValueError, match="16 elements"):
        torch.tpu.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_fork_rng_leaves_the_state_as_it_was():
    torch.manual_seed(3)
    expected = torch.rand(2, device="tpu").tolist()
    torch.manual_seed(3)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.rand(5, device="tpu")
    assert torch.rand(2, device="tpu").tolist() == expected


def test_seed_takes_a_new_seed_each_time():
    seeds = {torch.tpu.seed() for _ in range(3)}
    assert len(seeds) == 3


def test_a_cpu_generator_can_serve_a_draw():
    def draw():
        generator = torch.Generator().manual_seed(5)
        return torch.rand(4, device="tpu", generator=generator).tolist()

    first = draw()
    torch.manual_seed(99)
    assert draw() == first


# -- streams and events ----------------------------------------------------------------------------------


def test_events_time_the_work_between_them():
    start, end = (torch.tpu.Event(enable_timing=True) for _ in range(2))
    x = torch.ones(256, 256, device="tpu")
    start.record()
    for _ in range(5):
        x = x @ x
    end.record()
    end.synchronize()
    assert start.query()
    assert end.query()
    assert 0 < start.elapsed_time(end) < 60_000
    assert end.elapsed_time(start) < 0


def test_events_without_timing_or_record_say_so():
    timed, plain = torch.tpu.Event(enable_timing=True), torch.tpu.Event()
    with pytest.raises(RuntimeError, match="must be recorded"):
        timed.elapsed_time(timed)
    plain.record()
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        plain.elapsed_time(timed)


def test_streams_are_the_one_queue():
    stream = torch.tpu.Stream()
    assert stream == torch.tpu.current_stream() == torch.tpu.default_stream()
    assert stream.device == torch.device("tpu", 0)
    with torch.tpu.stream(stream), stream:
        x = torch.ones(4, device="tpu") * 2
    x.record_stream(stream)
    event = stream.record_event()
    stream.wait_event(event)
    stream.wait_stream(torch.tpu.Stream())
    stream.synchronize()
    assert stream.query()
    assert event.query() or not event.synchronize()
    assert x.tolist() == [2.0] * 4


def test_synchronize_waits_for_everything():
    x = torch.ones(64, 64, device="tpu") @ torch.ones(64, 64, device="tpu")
    torch.tpu.synchronize()
    torch.tpu.synchronize("tpu:0")
    assert torch.tpu.current_stream().query()
    assert x[0, 0].item() == 64


# -- counters -----------------------------------------------------------------------------------------------


def test_metrics_count_compiles_once_a_shape():
    x = torch.ones(3, 17, device="tpu")
    (x * 3).cpu()
    before = torch.tpu.metrics.compiles()
    (x * 5).cpu()
    assert torch.tpu.metrics.compiles() == before
    assert "compiles" in torch.tpu.metrics.report()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_draws_the_same_dropout_again(use_reentrant):
    x = torch.ones(1, 64, device="tpu", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(
        lambda a: torch.nn.functional.dropout(a.tanh(), 0.5), x, use_reentrant=use_reentrant
    )
    y.sum().backward()
    assert torch.equal(y != 0, x.grad != 0)


def test_fork_rng_restores_the_state():
    torch.manual_seed(3)
    with torch.random.fork_rng(device_type="tpu"):
        first = torch.rand(4, device="tpu")
    assert torch.equal(first, torch.rand(4, device="tpu"))
