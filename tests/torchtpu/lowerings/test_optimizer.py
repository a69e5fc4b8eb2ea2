"""Optimizers on tpu take the CPU's steps, and a schedule compiles nothing."""

import pytest
import torch
from torch import nn, optim

from torchtpu import metrics

OPTIMIZERS = {
    "sgd": (optim.SGD, {"lr": 0.1}),
    "sgd_nesterov": (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "adam": (optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    "adam_amsgrad": (optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adamw": (optim.AdamW, {"lr": 0.01, "maximize": True}),
    "adagrad": (optim.Adagrad, {"lr": 0.01, "lr_decay": 0.1, "weight_decay": 0.1}),
    "rmsprop": (optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
    "adadelta": (optim.Adadelta, {}),
    "adamax": (optim.Adamax, {}),
    "nadam": (optim.NAdam, {}),
    "radam": (optim.RAdam, {}),
    "asgd": (optim.ASGD, {}),
}
FUSED = ["sgd", "sgd_nesterov", "adam", "adam_amsgrad", "adamw", "adagrad"]
LOOPS = ["sgd_nesterov", "adam_amsgrad", "adamw", "adagrad", "rmsprop", "radam"]
STEPS = 8  # RAdam changes its formula at the sixth


def train(device, optimizer_class, options):
    """Parameters after STEPS steps with a decaying rate, and the compiles of the last two steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).to(device)
    x, y = torch.randn(5, 4).to(device), torch.randn(5, 2).to(device)
    optimizer = optimizer_class(model.parameters(), **options)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for step in range(STEPS):
        if step == STEPS - 2:
            compiles = metrics.compiles()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        schedule.step()
    return [p.detach().cpu() for p in model.parameters()], metrics.compiles() - compiles


VARIANTS = [
    *((name, {"foreach": True}) for name in OPTIMIZERS),
    *((name, {"foreach": False}) for name in LOOPS),
    *((name, {"fused": True}) for name in FUSED),
]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_optimizer_takes_the_same_steps_and_never_recompiles(no_fallback, name, variant):
    optimizer_class, options = OPTIMIZERS[name]
    expected, _ = train("cpu", optimizer_class, {**options, "foreach": False})
    actual, compiles = train("tpu", optimizer_class, {**options, **variant})
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=1e-6)
    assert compiles == 0


@pytest.mark.parametrize("optimizer_class", [optim.Adam, optim.SGD])
def test_rate_as_a_tensor(no_fallback, optimizer_class):
    options = {"lr": torch.tensor(0.01), "fused": True}
    expected, _ = train("cpu", optimizer_class, {"lr": 0.01})
    actual, _ = train("tpu", optimizer_class, {**options, "lr": options["lr"].to("tpu")})
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=1e-6)


def lists(device, dtype=torch.float32):
    shapes = [(3,), (2, 2), ()]

    def fill(start):
        return [
            (torch.linspace(start, start + 1, torch.Size(s).numel()).reshape(s))
            .to(dtype)
            .to(device)
            for s in shapes
        ]

    return fill(0.5), fill(1.5), fill(0.2)


BINARY = ["add", "sub", "mul", "div", "clamp_max", "maximum"]
UNARY = ["abs", "sqrt", "neg", "reciprocal", "sign", "lgamma"]
CASES = {
    **{f"{n}.List": lambda a, b, c, f: f(a, b) for n in BINARY},
    **{f"{n}.Scalar": lambda a, b, c, f: f(a, 0.7) for n in BINARY},
    **{f"{n}.ScalarList": lambda a, b, c, f: f(a, [0.7, 2, -1.5]) for n in BINARY},
    **{f"{n}.": lambda a, b, c, f: f(a) for n in UNARY},
    "add.alpha": lambda a, b, c, f: f(a, b, alpha=0.3),
    "mul.Tensor": lambda a, b, c, f: f(a, c[2]),
    "addcmul.Scalar": lambda a, b, c, f: f(a, b, c, 0.4),
    "addcdiv.ScalarList": lambda a, b, c, f: f(a, b, c, [0.4, 1.0, 2]),
    "addcdiv.Tensor": lambda a, b, c, f: f(a, b, c, torch.tensor([0.4, 1.0, 2.0])),
    "lerp.Scalar": lambda a, b, c, f: f(a, b, 0.8),
    "lerp.List": lambda a, b, c, f: f(a, b, c),
    "pow.List": lambda a, b, c, f: f(a, b),
    "pow.Scalar": lambda a, b, c, f: f(a, 2),
    "pow.ScalarList": lambda a, b, c, f: f(a, [2, 0.5, 3]),
    "pow.ScalarAndTensor": lambda a, b, c, f: f(0.9, a),
    "norm.2": lambda a, b, c, f: f(a),
    "norm.1": lambda a, b, c, f: f(a, 1),
    "max.": lambda a, b, c, f: f(a),
}


@pytest.mark.parametrize("case", CASES)
def test_foreach(no_fallback, case):
    function = getattr(torch, "_foreach_" + case.split(".")[0])
    results = [CASES[case](*lists(device), function) for device in ("cpu", "tpu")]
    for expected, actual in zip(*results):
        assert actual.device.type == "tpu"
        torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("name", ["add", "mul", "div"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_foreach_promotes_as_the_cpu_does(no_fallback, name, dtype):
    function = getattr(torch, "_foreach_" + name)
    for other in (2, 0.3):
        expected, actual = ([*function(lists(d, dtype)[1], other)] for d in ("cpu", "tpu"))
        for a, e in zip(actual, expected):
            assert a.dtype == e.dtype
            torch.testing.assert_close(a.cpu(), e)


def test_foreach_in_place(no_fallback):
    outcomes = []
    for device in ("cpu", "tpu"):
        a, b, c = lists(device)
        torch._foreach_add_(a, b, alpha=2)
        torch._foreach_sqrt_(b)
        torch._foreach_zero_(c)
        d = [torch.empty_like(x) for x in a]
        torch._foreach_copy_(d, a)
        outcomes.append([x.cpu() for x in (*a, *b, *c, *d)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_gradient_clipping(no_fallback):
    outcomes = []
    for device in ("cpu", "tpu"):
        parameters = [nn.Parameter(x) for x in lists(device)[0]]
        for p in parameters:
            p.grad = p.detach() * 3
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        nn.utils.clip_grad_value_(parameters, 0.4)
        outcomes.append([norm.cpu(), *(p.grad.cpu() for p in parameters)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_gradient_scaler_unscales_and_skips_overflowed_steps(no_fallback, overflow, fused):
    parameter = nn.Parameter(torch.tensor([1.0, 2.0], device="tpu"))
    optimizer = optim.AdamW([parameter], lr=0.1, weight_decay=0.0, fused=fused)
    scaler = torch.amp.GradScaler("tpu", init_scale=8.0, growth_interval=1)
    factor = float("inf") if overflow else 1.0
    scaler.scale((parameter * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    if overflow:
        assert parameter.tolist() == [1.0, 2.0]
        assert scaler.get_scale() == 4.0
    else:
        torch.testing.assert_close(parameter.detach().cpu(), torch.tensor([0.9, 1.9]))
        assert scaler.get_scale() == 16.0
