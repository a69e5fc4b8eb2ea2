"""Functions of two and three tensors agree with the CPU: promotion, division, edges, gradients."""

import pytest
import torch

NAN, INF = float("nan"), float("inf")
LEFT = torch.tensor([NAN, 1.0, -1.0, 0.0, -0.0, 7.0, -7.0, 7.5, -7.5, 3.0, INF, 2.0, 5.0])
RIGHT = torch.tensor([1.0, NAN, 0.0, 0.0, 3.0, 3.0, 3.0, -2.0, -2.0, -3.0, 2.0, INF, -INF])

ARITHMETIC = "add sub mul div floor_divide fmod remainder".split()
FLOAT_ONLY = "atan2 copysign hypot logaddexp logaddexp2 xlogy special.xlog1py nextafter".split()
CHOICE = "maximum minimum fmax fmin heaviside".split()
COMPARISONS = "eq ne lt le gt ge".split()
LOGIC = "logical_and logical_or logical_xor".split()
BITWISE = "bitwise_and bitwise_or bitwise_xor".split()


def function_of(name):
    owner = torch
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


@pytest.mark.parametrize("name", ARITHMETIC + FLOAT_ONLY + CHOICE + COMPARISONS + LOGIC)
def test_floats_and_special_values(same_as_cpu, name):
    same_as_cpu(function_of(name), LEFT, RIGHT)


@pytest.mark.parametrize("name", ARITHMETIC[:4] + FLOAT_ONLY[:-1] + ["fmod", "remainder", "pow"])
def test_gradients(same_as_cpu, name):
    x = torch.tensor([[0.5, 1.5, 2.5], [3.0, 0.2, 1.1]], requires_grad=True)
    y = torch.tensor([0.7, 1.2, 2.0], requires_grad=True)
    same_as_cpu(function_of(name), x, y)


@pytest.mark.parametrize(
    "name", [*ARITHMETIC, *CHOICE, *COMPARISONS, *LOGIC, *BITWISE, "gcd", "lcm"]
)
def test_integers(same_as_cpu, name):
    a = torch.tensor([7, -7, 7, -7, 0, 12, 2**40])
    b = torch.tensor([3, 3, -3, -3, 5, 18, 3])
    same_as_cpu(function_of(name), a, b)


@pytest.mark.parametrize("name", ["add", "mul", "eq", "maximum", *LOGIC, *BITWISE])
def test_bools(same_as_cpu, name):
    same_as_cpu(
        function_of(name), torch.tensor([True, True, False]), torch.tensor([True, False, False])
    )


DTYPES = [torch.bool, torch.int64, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
def test_promotion_of_tensors(same_as_cpu, left, right):
    a, b = torch.tensor([1, 2, 3]).to(left), torch.tensor([3, 1, 1]).to(right)
    same_as_cpu(torch.mul, a, b)
    same_as_cpu(torch.div, a, b[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2, 2.5])
def test_promotion_of_numbers(same_as_cpu, dtype, number):
    x = torch.tensor([1, 2, 3]).to(dtype)
    same_as_cpu(lambda x: (x * number, number - x if dtype != torch.bool else x, x > number), x)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_rounding_modes_of_division(same_as_cpu, mode):
    same_as_cpu(lambda a, b: torch.div(a, b, rounding_mode=mode), LEFT, RIGHT)
    a, b = torch.tensor([7, -7, 7, -7]), torch.tensor([3, 3, -3, -3])
    same_as_cpu(lambda a, b: torch.div(a, b, rounding_mode=mode), a, b)
    same_as_cpu(lambda a: torch.div(a, 2.5, rounding_mode=mode), a)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, 7])
def test_powers_with_a_number_as_exponent(same_as_cpu, exponent):
    same_as_cpu(lambda x: x**exponent, torch.tensor([0.5, 1.0, 2.0, 3.5], requires_grad=True))
    if exponent >= 0:
        same_as_cpu(lambda x: x**exponent, torch.tensor([0, 1, 2, -3]))


def test_powers_of_integers(same_as_cpu):
    same_as_cpu(torch.pow, torch.tensor([1, -1, -1, 2, 3]), torch.tensor([-2, -2, -3, -1, 4]))
    same_as_cpu(lambda e: 2.5**e, torch.tensor([0.0, 1.0, -2.0]))


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts(same_as_cpu, name):
    same_as_cpu(function_of(name), torch.tensor([1, -8, 7]), torch.tensor([3, 1, 2]))
    same_as_cpu(lambda x: function_of(name)(x, 2), torch.tensor([1, -8, 7]))


@pytest.mark.parametrize("limits", [(-1.0, None), (None, 1), (-0.5, 0.5), (2.0, 1.0)])
def test_clamp_by_numbers(same_as_cpu, limits):
    x = torch.tensor([NAN, INF, -3.0, 0.2, 4.0], requires_grad=True)
    same_as_cpu(lambda x: torch.clamp(x, *limits), x)


def test_clamp_by_tensors(same_as_cpu):
    x = torch.tensor([[-3.0, 0.2, 4.0], [0.0, 1.0, 2.0]], requires_grad=True)
    same_as_cpu(torch.clamp, x, torch.tensor([-1.0, NAN, 0.0]), torch.tensor([[1.0], [2.0]]))
    same_as_cpu(lambda x: torch.clamp(x, 1.5), torch.tensor([1, 2]))
    same_as_cpu(lambda x: torch.clamp_min(x, 0).clamp_max_(1), x.detach())


def test_where(same_as_cpu):
    condition = torch.tensor([True, False, True])
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    same_as_cpu(torch.where, condition, x, torch.tensor([[4.0], [5.0]], requires_grad=True))
    same_as_cpu(lambda c, x: torch.where(c, x, 0), condition, x)
    same_as_cpu(lambda c, x: torch.where(c, 1, x), condition, torch.tensor([1, 2, 3]))


@pytest.mark.parametrize("value", [1, 0.5])
def test_addcmul_and_addcdiv(same_as_cpu, value):
    tensors = [
        torch.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [[3.0], [0.5]], [4.0, 5.0])
    ]
    same_as_cpu(lambda *t: torch.addcmul(*t, value=value), *tensors)
    same_as_cpu(lambda *t: torch.addcdiv(*t, value=value), *tensors)


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.75, 1.0])
def test_lerp(same_as_cpu, weight):
    start = torch.tensor([1.0, 10.0], requires_grad=True)
    end = torch.tensor([[2.0, -3.0]], requires_grad=True)
    same_as_cpu(lambda a, b: torch.lerp(a, b, weight), start, end)
    same_as_cpu(torch.lerp, start, end, torch.tensor([weight, 0.4]))


@pytest.mark.parametrize("alpha", [1, 2, -0.5])
def test_alpha(same_as_cpu, alpha):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([[3.0], [4.0]], requires_grad=True)
    same_as_cpu(lambda x, y: torch.add(x, y, alpha=alpha), x, y)
    same_as_cpu(lambda x, y: torch.sub(x, y, alpha=alpha), x, y)
    same_as_cpu(lambda x, y: torch.rsub(x, y, alpha=alpha), x, y)


def test_complex_numbers(same_as_cpu):
    re, im = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.5, 1.0, -3.0])
    same_as_cpu(torch.complex, re.requires_grad_(), im.requires_grad_())
    same_as_cpu(torch.polar, re.detach().abs(), im.detach())
    z = torch.complex(re, im).detach().requires_grad_()
    for name in ("mul", "div", "sub", "pow"):
        same_as_cpu(function_of(name), z, z.detach().flip(0).requires_grad_())
    same_as_cpu(lambda z: (z.real + z.imag, z == z.conj(), z.abs()), z)


def test_values_of_numbers_compile_nothing():
    from torchtpu import metrics

    x = torch.ones(3, device="tpu")

    def step(v):
        (x * v + v - x / v).clamp_(min=v).add_(x, alpha=v)
        torch.addcdiv(x, x, x, value=v)
        return torch.lerp(x, x, v) > v

    step(0.3)
    before = metrics.compiles()
    for v in (0.4, 1.7, -2.5):
        step(v)
    assert metrics.compiles() == before


@pytest.mark.parametrize(
    "name",
    [
        *(f"chebyshev_polynomial_{k}" for k in "tuvw"),
        "shifted_chebyshev_polynomial_t",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
    ],
)
def test_orthogonal_polynomials(same_as_cpu, name):
    x = torch.tensor([[0.2], [-0.6], [1.0]])
    same_as_cpu(getattr(torch.special, name), x, torch.tensor([0.0, 1.0, 2.0, 5.0, -1.0]))


def test_gamma_and_zeta_families(same_as_cpu):
    a, x = torch.tensor([0.5, 2.0, 5.0]), torch.tensor([1.0, 0.3, 6.0])
    same_as_cpu(torch.igamma, a, x)
    same_as_cpu(torch.igammac, a, x)
    same_as_cpu(torch.special.zeta, a + 1, torch.tensor([1.0, 0.5, 3.0]))
