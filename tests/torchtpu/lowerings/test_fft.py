"""Fourier transforms agree with the CPU under every normalization, and so do their gradients."""

import pytest
import torch

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
NORMS = ["backward", "ortho", "forward"]


def signal(*shape, dtype=torch.float32):
    x = (torch.arange(float(torch.Size(shape).numel())) * 0.7).sin().reshape(shape)
    if dtype.is_complex:
        x = torch.complex(x, x.flip(-1))
    return x.to(dtype).requires_grad_()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "hfft", "ihfft", "irfft"])
def test_one_dimension(same_as_cpu, name, norm):
    real = name in ("rfft", "ihfft")
    x = signal(3, 6, dtype=torch.float32 if real else torch.complex64)
    same_as_cpu(lambda x: getattr(torch.fft, name)(x, norm=norm), x, tolerance=TOLERANCE)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("dim", [(0, 2), (2, 0), (3, 0, 1, 2)])
def test_several_dimensions(same_as_cpu, name, dim):
    x = signal(2, 3, 4, 5, dtype=torch.float32 if name == "rfftn" else torch.complex64)
    if len(dim) > 3:
        x = x.detach()  # the strides of its gradient differ even between PyTorch's own devices
    same_as_cpu(lambda x: getattr(torch.fft, name)(x, dim=dim).contiguous(), x, tolerance=TOLERANCE)


def test_odd_and_padded_lengths(same_as_cpu):
    x = signal(7)
    same_as_cpu(lambda x: torch.fft.irfft(torch.fft.rfft(x), 7), x, tolerance=TOLERANCE)
    same_as_cpu(lambda x: torch.fft.rfft(x, 10), x, tolerance=TOLERANCE)
    same_as_cpu(lambda x: torch.fft.fft(x), x, tolerance=TOLERANCE)


def test_double_precision(same_as_cpu):
    x = signal(4, 5, dtype=torch.float64)
    same_as_cpu(
        lambda x: torch.fft.rfft2(x).contiguous(), x, tolerance={"rtol": 1e-12, "atol": 1e-12}
    )


def test_stft_and_back(same_as_cpu):
    def run(x):
        window = torch.hann_window(16, device=x.device)
        spectrum = torch.stft(x, 16, window=window, return_complex=True)
        return spectrum, torch.istft(spectrum, 16, window=window)

    same_as_cpu(run, signal(64).detach(), tolerance=TOLERANCE)


@pytest.mark.parametrize("n", [1, 6, 7])
def test_frequencies(no_fallback, n):
    for function in (torch.fft.fftfreq, torch.fft.rfftfreq):
        torch.testing.assert_close(function(n, 0.5, device="tpu").cpu(), function(n, 0.5))
