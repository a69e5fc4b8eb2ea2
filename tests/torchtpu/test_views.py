"""Every way to make a view is noticed: an operator on the view never reads its storage whole by
mistake, even where an executable for the whole storage's layout is at hand."""

import pytest
import torch

VIEWS = {
    "alias": lambda x: torch.ops.aten.alias(x),
    "as_strided": lambda x: x.as_strided((4, 4), (1, 4)),
    "chunk": lambda x: x.chunk(2)[1],
    "conj": lambda x: x.conj(),
    "conj_imag": lambda x: x.conj().imag if x.is_complex() else x,
    "detach": lambda x: x.detach(),
    "detach_then_transpose": lambda x: x.detach().t(),
    "diagonal": lambda x: x.diagonal(),
    "expand": lambda x: x[:1].expand(4, 4),
    "expand_as": lambda x: x[0].expand_as(x),
    "flatten": lambda x: x.flatten(),
    "getitem": lambda x: x[1:, ::2],
    "hsplit": lambda x: x.hsplit(2)[1],
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 1),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "permute": lambda x: x.permute(1, 0),
    "real": lambda x: x.real,
    "reshape": lambda x: x.reshape(2, 8),
    "reshape_same_size": lambda x: x.view(16).view(4, 4).t(),
    "select": lambda x: x.select(0, 2),
    "slice": lambda x: x[::2],
    "split": lambda x: x.split(1)[2],
    "split_with_sizes": lambda x: x.split([1, 3])[1],
    "squeeze": lambda x: x.view(4, 1, 4).squeeze(1).t(),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x.t(),
    "tensor_split": lambda x: x.tensor_split(3)[1],
    "transpose": lambda x: x.transpose(0, 1),
    "unsafe_view": lambda x: torch.ops.aten._unsafe_view(x, [2, 8]),
    "unbind": lambda x: x.unbind(1)[3],
    "unflatten": lambda x: x.unflatten(0, (2, 2)),
    "unfold": lambda x: x.unfold(0, 2, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "view": lambda x: x.view(8, 2),
    "view_as": lambda x: x.view_as(torch.empty(2, 8)),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(8, 2)) if not x.is_complex() else x,
    "view_as_real": lambda x: torch.view_as_real(x) if x.is_complex() else x,
    "view_dtype": lambda x: x.view(torch.int32),
    "vsplit": lambda x: x.vsplit(2)[1],
    "functorch_vmap": lambda x: torch.func.vmap(lambda row: row[::2])(x),
}

# In place: the tensor itself changes its geometry.
CHANGES = {
    "as_strided_": lambda x: x.as_strided_((4, 4), (1, 4)),
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(0).t_(),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "set_": lambda x: x.set_(x.t()),
    "set_storage": lambda x: x.set_(x.untyped_storage(), 0, (4, 4), (1, 4)),
    "resize_": lambda x: x.resize_(2, 2),
    "data": lambda x: setattr(x, "data", x.t()) or x,
    "swap_tensors": lambda x: torch.utils.swap_tensors(x, x.clone().t()) or x,
}


def _make(dtype, device):
    x = torch.arange(16, dtype=torch.float32).view(4, 4)
    if dtype.is_complex:
        x = torch.complex(x, -x - 1)
    return x.to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("name", [*VIEWS, *CHANGES])
def test_an_operator_reads_the_view(name, dtype):
    function = (VIEWS | CHANGES)[name]
    for tensor in (_make(dtype, "tpu"), _make(dtype, "cpu")):
        (tensor + tensor, -tensor, tensor * 2)  # executables for the whole storage
    theirs = function(_make(dtype, "cpu"))
    ours = function(_make(dtype, "tpu"))
    assert (ours.shape, ours.stride()) == (theirs.shape, theirs.stride())
    for operator in (lambda x: x + x, lambda x: -x, lambda x: x * 2, lambda x: x + x.clone()):
        for _ in range(2):  # through the kernel, then the short way
            torch.testing.assert_close(operator(ours).cpu(), operator(theirs), rtol=1e-6, atol=0)


def test_a_folded_product_is_not_read_as_its_storage():
    for _ in range(3):
        torch.exp(torch.ones(6, 7, device="tpu"))  # the short way knows this layout
    a, w = torch.randn(2, 3, 5), torch.randn(7, 5)
    ours = torch.exp(torch.nn.functional.linear(a.to("tpu"), w.to("tpu")))
    torch.testing.assert_close(ours.cpu(), torch.exp(torch.nn.functional.linear(a, w)))
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(3):
        x.to("tpu") * y.to("tpu")
    torch.testing.assert_close(torch.kron(x.to("tpu"), y.to("tpu")).cpu(), torch.kron(x, y))


@pytest.mark.parametrize("dtype", [torch.complex64])
def test_products_see_a_lazy_conjugate(dtype):
    a, b = _make(dtype, "tpu"), _make(dtype, "cpu")
    for product in (
        lambda x: x @ x.mH,
        lambda x: torch.bmm(x[None].mH, x[None]),
        lambda x: x.conj() @ x,
    ):
        torch.testing.assert_close(product(a).cpu(), product(b), rtol=1e-5, atol=1e-5)
