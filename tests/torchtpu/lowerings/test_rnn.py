"""LSTM and GRU, whose cells PyTorch fuses on this device, agree with the CPU."""

import pytest
import torch
from torch import nn

TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_and_gradients(same_as_cpu, kind, bias):
    module = kind(3, 4, num_layers=2, bias=bias, bidirectional=True, batch_first=True)
    names, values = zip(*module.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

    x = torch.randn(2, 3, 3, requires_grad=True)
    same_as_cpu(run, x, *values, tolerance=TOLERANCE)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells(same_as_cpu, kind):
    module = kind(3, 4)
    names, values = zip(*module.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

    same_as_cpu(run, torch.randn(2, 3, requires_grad=True), *values, tolerance=TOLERANCE)
