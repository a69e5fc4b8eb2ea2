"""Saving, loading, copying and printing tpu tensors."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def _shares_storage(a, b):
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_survive_save_and_load(dtype):
    x = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype).to("tpu")
    loaded = torch.load(_saved(x))
    assert loaded.device == torch.device("tpu", 0)
    assert loaded.dtype == dtype
    assert loaded.tolist() == x.tolist()


def test_views_that_share_a_storage_still_do():
    base = torch.arange(12.0, device="tpu").view(3, 4)
    kept = {"base": base, "row": base[1], "column": base[:, 2], "transposed": base.t()}
    loaded = torch.load(_saved(kept), weights_only=True)
    for name, view in kept.items():
        assert loaded[name].stride() == view.stride()
        assert loaded[name].storage_offset() == view.storage_offset()
        assert loaded[name].tolist() == view.tolist()
        assert _shares_storage(loaded[name], loaded["base"])
    loaded["row"].fill_(-1)
    assert loaded["base"].tolist()[1] == [-1.0] * 4
    assert loaded["column"].tolist() == [2.0, -1.0, 10.0]


def test_map_location_moves_both_ways():
    x = torch.arange(4.0)
    for target in ("tpu", "tpu:0", torch.device("tpu")):
        there = torch.load(_saved(x), map_location=target)
        assert there.device == torch.device("tpu", 0)
        assert there.tolist() == x.tolist()
    back = torch.load(_saved(x.to("tpu")), map_location="cpu")
    assert back.device.type == "cpu"
    assert back.tolist() == x.tolist()
    moved = torch.load(_saved(x.to("tpu")), map_location=lambda storage, location: storage)
    assert moved.device.type == "cpu"
    assert torch.load(_saved(x), map_location={"cpu": "tpu"}).is_tpu


def test_a_file_without_zip_works_too():
    x = torch.arange(4.0, device="tpu")[1:]
    loaded = torch.load(_saved(x, _use_new_zipfile_serialization=False))
    assert loaded.is_tpu
    assert loaded.tolist() == [1.0, 2.0, 3.0]


def test_a_model_and_its_optimizer_survive_save_and_load():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(
        torch.ones(3, 4, device="tpu") * torch.arange(3.0, device="tpu")[:, None]
    ).sum().backward()
    optimizer.step()
    file = _saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    for location in ("cpu", None):
        file.seek(0)
        states = torch.load(file, weights_only=True, map_location=location)
        other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to("tpu")
        other.load_state_dict(states["model"])
        again = torch.optim.AdamW(other.parameters(), lr=0.1)
        again.load_state_dict(states["optimizer"])
        for ours, theirs in zip(other.parameters(), model.parameters(), strict=True):
            assert ours.is_tpu
            assert torch.equal(ours, theirs)
        assert again.state[other[0].weight]["exp_avg"].is_tpu
        assert torch.equal(
            again.state[other[0].weight]["exp_avg"], optimizer.state[model[0].weight]["exp_avg"]
        )


def test_a_checkpoint_made_on_the_cpu_trains_on_the_tpu():
    model = nn.Linear(3, 2)
    loaded = nn.Linear(3, 2).to("tpu")
    loaded.load_state_dict(torch.load(_saved(model.state_dict()), map_location="tpu"))
    assert loaded.weight.is_tpu
    assert torch.equal(loaded.weight.cpu(), model.weight)


def test_a_whole_module_can_be_pickled():
    model = nn.Linear(3, 2).to("tpu")
    other = torch.load(_saved(model), weights_only=False)
    assert other.weight.is_tpu
    assert torch.equal(other.weight, model.weight)


def test_deepcopy_copies_once_what_is_shared():
    base = torch.arange(6.0, device="tpu")
    copied = copy.deepcopy({"base": base, "view": base[2:]})
    assert not _shares_storage(copied["base"], base)
    assert _shares_storage(copied["base"], copied["view"])
    copied["base"].zero_()
    assert copied["view"].tolist() == [0.0] * 4
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_deepcopy_of_a_model_trains_apart():
    model = nn.Linear(2, 2).to("tpu")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.add_(1)
    assert torch.equal(twin.weight, model.weight + 1)
    assert isinstance(twin.weight, nn.Parameter)


def test_pickle_keeps_values_and_device():
    x = torch.arange(6.0, device="tpu").view(2, 3).t()
    loaded = pickle.loads(pickle.dumps(x))
    assert loaded.is_tpu
    assert loaded.stride() == x.stride()
    assert torch.equal(loaded, x)
    parameter = pickle.loads(pickle.dumps(nn.Parameter(x)))
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad


# -- storages --------------------------------------------------------------------------------------


def test_storages_know_their_size():
    x = torch.arange(6, dtype=torch.int16, device="tpu")
    storage = x.untyped_storage()
    assert storage.nbytes() == storage.size() == len(storage) == 12
    assert storage.device == torch.device("tpu", 0)
    assert x[2:].untyped_storage().nbytes() == 12
    assert bytes(storage.cpu().tolist()) == bytes(torch.arange(6, dtype=torch.int16).numpy())


def test_storages_can_be_told_apart_by_their_pointer():
    x, y = torch.ones(4, device="tpu"), torch.ones(4, device="tpu")
    pointers = [t.untyped_storage().data_ptr() for t in (x, x[2:], y)]
    assert pointers[0] == pointers[1] != pointers[2]
    assert 0 not in pointers


def test_storages_resize_and_keep_what_fits():
    x = torch.arange(4.0, device="tpu")
    storage = x.untyped_storage()
    storage.resize_(32)
    assert storage.nbytes() == 32
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    storage.resize_(8)
    assert x[:2].tolist() == [0.0, 1.0]
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(16)
    x.copy_(torch.full((4,), 7.0))
    assert x.tolist() == [7.0] * 4


def test_storages_copy_to_and_from_the_host():
    source = torch.arange(4.0)
    target = torch.zeros(4, device="tpu")
    target.untyped_storage().copy_(source.untyped_storage())
    assert target.tolist() == source.tolist()
    back = torch.zeros(4)
    back.untyped_storage().copy_(target.untyped_storage())
    assert back.tolist() == source.tolist()


def test_a_storage_copied_from_the_host_is_not_taken_for_the_bytes_it_came_as():
    raw = torch.zeros(16, dtype=torch.uint8, device="tpu")
    assert (raw + raw).shape == (16,)  # so that adding such storages is a known call
    x = torch.ones(2, 2, device="tpu")
    x.untyped_storage().copy_(torch.full((2, 2), 2.0).untyped_storage())
    for _ in range(2):
        assert (x + x).tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_saving_leaves_a_tensor_as_quick_to_use_as_before():
    x = torch.ones(2, 3, device="tpu")
    _saved(x)
    assert x.untyped_storage().tpu_buffer.whole is not None


# -- to the host -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_come_back_as_they_went(dtype):
    x = torch.tensor([[0, 1], [2, 3]]).to(dtype)
    y = x.to("tpu")
    assert y.tolist() == x.tolist()
    assert y[1, 0].item() == x[1, 0].item()
    if dtype != torch.bfloat16:
        assert np.array_equal(y.cpu().numpy(), x.numpy())
        assert y.cpu().numpy().dtype == x.numpy().dtype


def test_numpy_of_a_tpu_tensor_says_to_go_by_the_cpu():
    with pytest.raises(TypeError, match=r"tpu.*cpu"):
        torch.ones(2, device="tpu").numpy()


def test_large_integers_and_doubles_are_not_narrowed():
    integers = torch.tensor([2**53 + 1, -(2**62)], device="tpu")
    assert integers.tolist() == [2**53 + 1, -(2**62)]
    assert (integers + 1).tolist() == [2**53 + 2, -(2**62) + 1]
    double = torch.tensor([1 / 3], dtype=torch.float64, device="tpu")
    assert (double * 3).item() == 1.0
    assert double.item() == 1 / 3


def test_changing_a_copy_leaves_the_original():
    x = torch.zeros(4, device="tpu")
    host = x.cpu()
    host.add_(1)
    assert x.tolist() == [0.0] * 4
    source = np.zeros(4, np.float32)
    y = torch.from_numpy(source).to("tpu")
    source += 1
    assert y.tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(3.0),
        lambda: torch.arange(3),
        lambda: torch.tensor(2.5, dtype=torch.float64),
        lambda: torch.ones(2, 2, dtype=torch.bfloat16),
        lambda: torch.tensor([True, False]),
        lambda: torch.zeros(0, 3),
        lambda: torch.tensor([1 + 2j]),
        lambda: torch.arange(2000.0).view(2, 1000),
        lambda: torch.tensor([float("nan"), float("inf")]),
    ],
    ids=["float", "int", "double", "bfloat16", "bool", "empty", "complex", "large", "nan"],
)
def test_printing_shows_values_and_device(make):
    on_cpu = make()
    text, expected = repr(on_cpu.to("tpu")), repr(on_cpu)
    assert "device='tpu:0'" in text

    def words(value):
        return value.replace("device='tpu:0'", "").replace(",", " ").replace(")", "").split()

    assert words(text) == words(expected)


def test_printing_shows_the_gradient_function():
    x = torch.ones(2, device="tpu", requires_grad=True)
    assert "requires_grad=True" in repr(x)
    assert "grad_fn=<MulBackward0>" in repr(x * 2)
    assert f"{x.sum():.1f}" == "2.0"


# -- feeding --------------------------------------------------------------------------------------------


def test_a_data_loader_with_pinned_memory_feeds_the_device():
    dataset = TensorDataset(torch.arange(6.0), torch.arange(6))
    loader = DataLoader(dataset, batch_size=2, pin_memory=True)
    seen = []
    for values, labels in loader:
        moved = values.to("tpu", non_blocking=True)
        assert labels.to("tpu", non_blocking=True).is_tpu
        seen += (moved * 2).tolist()
    assert seen == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_non_blocking_copies_are_safe_to_overwrite():
    host = torch.zeros(1000)
    on_device = [host.fill_(i).to("tpu", non_blocking=True) for i in range(5)]
    assert [t.sum().item() for t in on_device] == [0.0, 1000.0, 2000.0, 3000.0, 4000.0]
    back = torch.empty(1000)
    back.copy_(on_device[3] + 1, non_blocking=True)
    torch.tpu.synchronize()
    assert back.tolist() == [4.0] * 1000


def test_pin_memory_gives_an_equal_cpu_tensor():
    x = torch.arange(3.0)
    pinned = x.pin_memory()
    assert pinned.device.type == "cpu"
    assert pinned.tolist() == x.tolist()


def test_a_loaded_tensor_lies_as_a_made_one(tmp_path):
    torch.save(torch.arange(6.0).view(2, 3), tmp_path / "x.pt")
    x = torch.load(tmp_path / "x.pt", map_location="tpu")
    layout = x.untyped_storage().tpu_buffer.layout
    assert (layout.size, layout.dtype) == ((2, 3), torch.float32)
    assert (x * 2).tolist() == [[0, 2, 4], [6, 8, 10]]
