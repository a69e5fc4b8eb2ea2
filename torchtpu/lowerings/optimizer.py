"""Fused optimizer steps and gradient scaling (AMP): one program for a whole list of parameters.

Learning rates, betas and the like arrive as 0-d arrays, so that a schedule compiles nothing.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from torchtpu.lowerings.common import like, upcast
from torchtpu.lowerings.registry import register_lowering

# How a step ends for one parameter: what was not finite is not applied.


def _guarded(found_inf, new, old):
    """`new` in the dtype of `old`; `old` where found_inf says that gradients overflowed."""
    new = new.astype(old.dtype)
    return new if found_inf is None else jnp.where(found_inf.reshape(()) == 1, old, new)


def _gradient(grad, grad_scale, maximize):
    """The unscaled gradient, and its value for the descent, in opmath."""
    unscaled = upcast(grad)
    if grad_scale is not None:
        unscaled = unscaled / like(grad_scale.reshape(()), unscaled)
    return unscaled, -unscaled if maximize else unscaled


def _stored_gradient(grad, unscaled, grad_scale):
    """The gradient tensor after the step: unscaled in place when there is a scale."""
    return grad if grad_scale is None else unscaled.astype(grad.dtype)


def _complement(number, x):
    """1 - number in the dtype of `x`, subtracted in float64: 1 - 0.999 has few digits left."""
    return like(1 - jnp.asarray(number).astype(np.float64), x)


def _scalars(x, *numbers):
    """Numbers or one-element tensors as 0-d arrays in the dtype of `x`."""
    return tuple(like(n.reshape(()) if getattr(n, "ndim", 0) else n, x) for n in numbers)


# Adam --------------------------------------------------------------------------------------------

ADAM_NUMBERS = ("beta1", "beta2", "weight_decay", "eps")


def _bias_correction(beta, step, x):
    """1 - beta ** step in the dtype of `x`, without the cancellation of the plain formula."""
    log_beta = jnp.log1p(-_complement(beta, x))
    return -jnp.expm1(like(step, x) * log_beta)


def _fused_adam(decoupled):
    """Adam (Kingma & Ba, 2015), AMSGrad, and with `decoupled` AdamW (Loshchilov & Hutter, 2019)."""

    def step(
        self,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        state_steps,
        *,
        lr,
        beta1,
        beta2,
        weight_decay,
        eps,
        amsgrad,
        maximize,
        grad_scale=None,
        found_inf=None,
    ):
        """Returns the new parameters, grads and three lists of state. state_steps already counts
        this step."""
        results = ([], [], [], [], [])
        lists = zip(self, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True)
        for i, (stored, grad, avg, avg_sq, count) in enumerate(lists):
            parameter = upcast(stored)
            unscaled, g = _gradient(grad, grad_scale, maximize)
            g = g.astype(parameter.dtype)
            rate, b2, decay, epsilon = _scalars(parameter, lr, beta2, weight_decay, eps)
            rest1, rest2 = _complement(beta1, parameter), _complement(beta2, parameter)
            correction1 = _bias_correction(beta1, count.reshape(()), parameter)
            root2 = jnp.sqrt(_bias_correction(beta2, count.reshape(()), parameter))
            if decoupled:
                parameter = parameter - rate * decay * parameter
            else:
                g = g + parameter * decay
            new_avg = upcast(avg) + rest1 * (g - upcast(avg))
            new_avg_sq = b2 * upcast(avg_sq) + rest2 * g * g
            second = new_avg_sq
            if amsgrad:
                second = jnp.maximum(upcast(max_exp_avg_sqs[i]), new_avg_sq)
                results[4].append(_guarded(found_inf, second, max_exp_avg_sqs[i]))
            denominator = jnp.sqrt(second) / root2 + epsilon
            parameter = parameter - rate / correction1 * new_avg / denominator
            results[0].append(_guarded(found_inf, parameter, stored))
            results[1].append(_stored_gradient(grad, unscaled, grad_scale))
            results[2].append(_guarded(found_inf, new_avg, avg))
            results[3].append(_guarded(found_inf, new_avg_sq, avg_sq))
        return results if amsgrad else (*results[:4], list(max_exp_avg_sqs))

    return step


for _name, _decoupled in {"_fused_adam": False, "_fused_adamw": True}.items():
    _step = _fused_adam(_decoupled)
    register_lowering(f"aten::{_name}", dynamic=("lr", *ADAM_NUMBERS), per_element=True)(_step)
    register_lowering(f"aten::{_name}.tensor_lr", dynamic=ADAM_NUMBERS, per_element=True)(_step)


# SGD ---------------------------------------------------------------------------------------------

SGD_NUMBERS = ("weight_decay", "dampening")


@register_lowering("aten::_fused_sgd", dynamic=("lr", *SGD_NUMBERS), per_element=True)
@register_lowering("aten::_fused_sgd.tensor_lr", dynamic=SGD_NUMBERS, per_element=True)
def fused_sgd(
    self,
    grads,
    momentum_buffer_list,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
    is_first_step,
    grad_scale=None,
    found_inf=None,
):
    """momentum is part of the program: without it there are no buffers."""
    parameters, stored_grads, buffers = [], [], []
    for i, (stored, grad) in enumerate(zip(self, grads, strict=True)):
        parameter = upcast(stored)
        unscaled, g = _gradient(grad, grad_scale, maximize)
        g = g.astype(parameter.dtype)
        rate, decay = _scalars(parameter, lr, weight_decay)
        g = g + decay * parameter
        if momentum != 0:
            old = momentum_buffer_list[i]
            factor = np.array(momentum, parameter.dtype)
            buffer = (
                g if is_first_step else factor * upcast(old) + _complement(dampening, parameter) * g
            )
            g = g + factor * buffer if nesterov else buffer
            buffers.append(_guarded(found_inf, buffer, old))
        parameters.append(_guarded(found_inf, parameter - rate * g, stored))
        stored_grads.append(_stored_gradient(grad, unscaled, grad_scale))
    return parameters, stored_grads, buffers if momentum != 0 else list(momentum_buffer_list)


# Adagrad -----------------------------------------------------------------------------------------

ADAGRAD_NUMBERS = ("lr_decay", "weight_decay", "eps")


def _fused_adagrad(returns_steps):
    """Adagrad (Duchi et al., 2011). The overload with a number as lr also returns the steps, which
    it counts as written."""

    def step(
        self,
        grads,
        state_sums,
        state_steps,
        *,
        lr,
        lr_decay,
        weight_decay,
        eps,
        maximize,
        grad_scale=None,
        found_inf=None,
    ):
        results = ([], [], [])
        lists = zip(self, grads, state_sums, state_steps, strict=True)
        for stored, grad, old_sum, count in lists:
            parameter = upcast(stored)
            unscaled, g = _gradient(grad, grad_scale, maximize)
            g = g.astype(parameter.dtype)
            rate, rate_decay, decay, epsilon = _scalars(parameter, lr, lr_decay, weight_decay, eps)
            g = g + decay * parameter
            rate = rate / (1 + (like(count.reshape(()), parameter) - 1) * rate_decay)
            new_sum = upcast(old_sum) + g * g
            parameter = parameter - rate * g / (jnp.sqrt(new_sum) + epsilon)
            results[0].append(_guarded(found_inf, parameter, stored))
            results[1].append(_stored_gradient(grad, unscaled, grad_scale))
            results[2].append(_guarded(found_inf, new_sum, old_sum))
        return (*results, list(state_steps)) if returns_steps else results

    return step


register_lowering("aten::_fused_adagrad", dynamic=("lr", *ADAGRAD_NUMBERS), per_element=True)(
    _fused_adagrad(True)
)
register_lowering("aten::_fused_adagrad.tensor_lr", dynamic=ADAGRAD_NUMBERS, per_element=True)(
    _fused_adagrad(False)
)


# Gradient scaling --------------------------------------------------------------------------------


@register_lowering("aten::_amp_foreach_non_finite_check_and_unscale")
def check_and_unscale(self, found_inf, inv_scale):
    """Multiplies all gradients by inv_scale; found_inf becomes 1 if any was not finite."""
    finite = jnp.ones((), bool)
    unscaled = []
    for grad in self:
        finite &= jnp.all(jnp.isfinite(grad))
        unscaled.append(
            (upcast(grad) * like(inv_scale.reshape(()), upcast(grad))).astype(grad.dtype)
        )
    return unscaled, jnp.where(finite, found_inf, jnp.ones_like(found_inf))


@register_lowering(
    "aten::_amp_update_scale", dynamic=("scale_growth_factor", "scale_backoff_factor")
)
def update_scale(
    self, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, growth_interval
):
    """The scale shrinks after an overflow and grows after growth_interval steps without one."""
    growth, backoff = _scalars(self, scale_growth_factor, scale_backoff_factor)
    overflow = found_inf.reshape(self.shape) != 0
    successes = growth_tracker + 1
    grow = successes == growth_interval
    grown = self * growth
    grown = jnp.where(grow & jnp.isfinite(grown), grown, self)
    return (
        jnp.where(overflow, self * backoff, grown),
        jnp.where(overflow | grow, jnp.zeros_like(growth_tracker), successes),
    )
