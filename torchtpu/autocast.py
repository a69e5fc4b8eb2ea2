"""``torch.autocast("tpu", dtype=torch.bfloat16)``: which operators run in which precision.

The policies are those that PyTorch documents for its accelerators (Automatic Mixed Precision
package, "CUDA Op-Specific Behavior"). Every operator that is in no list passes through unchanged.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_library: torch.library.Library | None = None
_fallthrough_library: torch.library.Library | None = None
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

# Matrix products and convolutions: arguments are cast to the autocast dtype.
LOWER_PRECISION = """
    _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm
    mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
""".split()

# Where 16 bits lose too much: floating arguments are cast to float32.
FLOAT32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
    margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
    binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
""".split()

# Reductions that take the dtype to accumulate in: float32 unless the caller names one.
FLOAT32_RESULT = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
    linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()

# Operators of several tensors: all are cast to the widest dtype among them.
WIDEST = """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    cat stack
""".split()


def _is_eligible(value) -> bool:
    """Floating tensors on the device, but float64 (as in PyTorch's own autocast)."""
    return (
        isinstance(value, Tensor)
        and value.device.type == "tpu"
        and value.is_floating_point()
        and value.dtype != torch.float64
    )


def _cast(args, kwargs, dtype: torch.dtype):
    def one(value):
        return value.to(dtype) if _is_eligible(value) and value.dtype != dtype else value

    return pytree.tree_map(one, (list(args), kwargs))


def _without_autocast(policy):
    """The kernel of an overload under a policy (overload, args, kwargs) -> (args, kwargs)."""

    @functools.wraps(policy)
    def make(overload):
        def kernel(*args, **kwargs):
            with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
                args, kwargs = policy(overload, args, kwargs)
                return overload(*args, **kwargs)

        return kernel

    return make


@_without_autocast
def _lower_precision(overload, args, kwargs):
    return _cast(args, kwargs, torch.get_autocast_dtype("tpu"))


@_without_autocast
def _float32(overload, args, kwargs):
    return _cast(args, kwargs, torch.float32)


@_without_autocast
def _float32_result(overload, args, kwargs):
    names = [a.name for a in overload._schema.arguments]
    position = names.index("dtype")
    given = kwargs.get("dtype") if position >= len(args) else args[position]
    if given is None and _is_eligible(args[0]):
        args = args[:position]
        kwargs = {**kwargs, "dtype": torch.float32}
        if not overload._schema.arguments[position].kwarg_only:
            defaults = [a.default_value for a in overload._schema.arguments[len(args) : position]]
            args = (*args, *defaults, kwargs.pop("dtype"))
    return args, kwargs


@_without_autocast
def _widest(overload, args, kwargs):
    dtypes = {v.dtype for v in pytree.tree_leaves((list(args), kwargs)) if _is_eligible(v)}
    if len(dtypes) < 2:
        return args, kwargs
    return _cast(args, kwargs, functools.reduce(torch.promote_types, dtypes))


def _refuse_binary_cross_entropy(*_args, **_kwargs):
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. "
        "Many models use a sigmoid layer right before the binary cross entropy layer: combine the "
        "two using torch.nn.functional.binary_cross_entropy_with_logits or "
        "torch.nn.BCEWithLogitsLoss, which are safe to autocast."
    )


def register() -> None:
    """Bind the policies to the AutocastPrivateUse1 key."""
    global _library, _fallthrough_library
    _fallthrough_library = torch.library.Library("_", "IMPL")
    _fallthrough_library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    _library = torch.library.Library("aten", "IMPL")
    for names, make in (
        (LOWER_PRECISION, _lower_precision),
        (FLOAT32, _float32),
        (FLOAT32_RESULT, _float32_result),
        (WIDEST, _widest),
    ):
        for name in names:
            base, _, overload_name = name.partition(".")
            packet = getattr(torch.ops.aten, base, None)
            overload = getattr(packet, overload_name or "default", None)
            if overload is not None:
                _library.impl(name, make(overload), "AutocastPrivateUse1")
    _library.impl("binary_cross_entropy", _refuse_binary_cross_entropy, "AutocastPrivateUse1")
