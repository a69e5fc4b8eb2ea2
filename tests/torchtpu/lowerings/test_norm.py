"""Normalisations agree with the CPU in training and inference, with running statistics, mixed
dtypes and gradients."""

import pytest
import torch
from torch.nn import functional as F

TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


def _parameters(count, dtype=torch.float32):
    return [torch.randn(count, dtype=dtype).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_layer_norm(same_as_cpu, shape, affine):
    x = torch.randn(3, 5, 6, requires_grad=True)
    parameters = [torch.randn(shape).requires_grad_() for _ in range(2)] if affine else []
    same_as_cpu(lambda x, *p: F.layer_norm(x, shape, *p), x, *parameters, tolerance=TOLERANCE)


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(same_as_cpu, affine):
    x = torch.randn(2, 6, 3, 4, requires_grad=True)
    parameters = _parameters(6) if affine else []
    same_as_cpu(lambda x, *p: F.group_norm(x, 3, *p), x, *parameters, tolerance=TOLERANCE)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 6), (2, 4, 3, 3), (2, 4, 2, 3, 2)])
def test_batch_norm_and_running_statistics(same_as_cpu, shape, training):
    def run(x, mean, var, weight, bias):
        mean, var = mean.clone(), var.clone()
        result = F.batch_norm(x, mean, var, weight, bias, training, momentum=0.3)
        return result, mean, var

    x = torch.randn(shape, requires_grad=True)
    statistics = torch.randn(4), torch.rand(4) + 0.5
    same_as_cpu(run, x, *statistics, *_parameters(4), tolerance=TOLERANCE)


def test_batch_norm_without_running_statistics_or_parameters(same_as_cpu):
    x = torch.randn(4, 3, 5, requires_grad=True)
    same_as_cpu(lambda x: F.batch_norm(x, None, None, training=True), x, tolerance=TOLERANCE)


def test_other_momentum_compiles_nothing_new(no_fallback):
    from torchtpu.runtime.executable_cache import cache

    x, mean, var = torch.randn(4, 3), torch.zeros(3), torch.ones(3)
    x, mean, var = x.to("tpu"), mean.to("tpu"), var.to("tpu")
    F.batch_norm(x, mean, var, training=True, momentum=1.0)
    before = len(cache.entries)
    F.batch_norm(x, mean, var, training=True, momentum=0.5)
    assert len(cache.entries) == before


def test_cumulative_average(same_as_cpu):
    def run(x):
        module = torch.nn.BatchNorm1d(3, momentum=None).to(x.device)
        for scale in (1, 2, 3):
            module(x * scale)
        return module.running_mean, module.running_var, module.num_batches_tracked

    same_as_cpu(run, torch.randn(5, 3))


def test_instance_norm(same_as_cpu):
    def run(x, weight, bias):
        return F.instance_norm(x, weight=weight, bias=bias)

    same_as_cpu(
        run, torch.randn(2, 3, 4, 4, requires_grad=True), *_parameters(3), tolerance=TOLERANCE
    )


@pytest.mark.parametrize("training", [True, False])
def test_bfloat16_input_with_float32_parameters(same_as_cpu, training):
    x = torch.randn(3, 4, 5, 5).bfloat16()
    statistics, parameters = (torch.zeros(4), torch.ones(4)), [p.detach() for p in _parameters(4)]
    same_as_cpu(F.batch_norm, x, *statistics, *parameters, training)
    same_as_cpu(lambda x, *p: F.group_norm(x, 2, *p), x, *parameters)
    same_as_cpu(lambda x, *p: F.layer_norm(x, (5,), *p), x, *[p.detach() for p in _parameters(5)])


def test_rms_norm(same_as_cpu):
    x, weight = torch.randn(3, 6, requires_grad=True), torch.randn(6, requires_grad=True)
    same_as_cpu(lambda x, w: F.rms_norm(x, (6,), w), x, weight, tolerance=TOLERANCE)


@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(same_as_cpu, dim):
    v = torch.randn(3, 4, 5, requires_grad=True)
    g = torch.randn([n if d == dim else 1 for d, n in enumerate(v.shape)], requires_grad=True)
    same_as_cpu(lambda v, g: torch._weight_norm(v, g, dim), v, g, tolerance=TOLERANCE)


@pytest.mark.parametrize("p", [1, 2, 3, float("inf")])
def test_renorm(same_as_cpu, p):
    same_as_cpu(lambda x: torch.renorm(x, p, 1, 1.5), torch.randn(3, 4, 5))


def test_layer_norm_second_derivative(same_as_cpu):
    def gradient_of_gradient(x, w):
        y = F.layer_norm(x, (6,), w).pow(3).sum()
        (gx,) = torch.autograd.grad(y, x, create_graph=True)
        return gx.square().sum()

    x, w = torch.randn(3, 6, requires_grad=True), torch.randn(6, requires_grad=True)
    same_as_cpu(gradient_of_gradient, x, w, tolerance={"rtol": 1e-3, "atol": 1e-2})


def test_sync_batch_norm_statistics_of_two_devices_join():
    """The parts that nn.SyncBatchNorm is made of give the batch norm of the joint batch."""
    parts = [torch.randn(n, 3, 4) for n in (2, 5)]
    whole = torch.cat(parts)
    means, invstds = zip(*(torch.batch_norm_stats(p.to("tpu"), 1e-5) for p in parts), strict=True)
    running_mean, running_var = torch.zeros(3, device="tpu"), torch.ones(3, device="tpu")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        whole.to("tpu"),
        torch.stack(means),
        torch.stack(invstds),
        running_mean,
        running_var,
        0.1,
        1e-5,
        torch.tensor([8.0, 20.0], device="tpu"),
    )
    result = torch.batch_norm_elemt(whole.to("tpu"), None, None, mean, invstd, 1e-5)
    expected_mean, expected_var = torch.zeros(3), torch.ones(3)
    expected = F.batch_norm(whole, expected_mean, expected_var, training=True)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(running_mean.cpu(), expected_mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(running_var.cpu(), expected_var, rtol=1e-4, atol=1e-5)
