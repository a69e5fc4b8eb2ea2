"""Functions of one tensor agree with the CPU, special values and gradients included."""

import pytest
import torch

NAN, INF = float("nan"), float("inf")
EDGES = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.3, -0.7, 3.2, 7.5]

FLOAT_FUNCTIONS = """
    acos acosh asin asinh atan atanh cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1
    i0 lgamma log log10 log1p log2 rad2deg reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh
    special.entr special.erfcx special.i0e special.i1 special.i1e special.log_ndtr special.ndtri
    angle logit
""".split()
SAME_DTYPE_FUNCTIONS = "abs ceil floor frac neg round sgn sign trunc nan_to_num square".split()
PREDICATES = "isnan isinf isposinf isneginf isfinite signbit logical_not".split()


def function_of(name):
    owner = torch
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


# The gradients of digamma at its poles are whatever the series gives.
@pytest.mark.parametrize("name", FLOAT_FUNCTIONS + SAME_DTYPE_FUNCTIONS)
def test_float_function_and_gradient(same_as_cpu, name):
    x = torch.tensor(EDGES, requires_grad=name != "digamma")
    same_as_cpu(function_of(name), x)


@pytest.mark.parametrize("name", "acos exp erf log sqrt sigmoid lgamma i0 angle rsqrt".split())
def test_integers_become_float(same_as_cpu, name):
    same_as_cpu(function_of(name), torch.tensor([0, 1, 2, 5]))


@pytest.mark.parametrize("name", "exp log sin tanh rsqrt sigmoid erfinv lgamma sinc frac".split())
def test_bfloat16_rounds_once(same_as_cpu, name):
    values = torch.linspace(-0.9, 3.1, 23).bfloat16()
    same_as_cpu(function_of(name), values, tolerance={"rtol": 8e-3, "atol": 1e-6})


@pytest.mark.parametrize("name", PREDICATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_predicate(same_as_cpu, name, dtype):
    values = EDGES if dtype.is_floating_point else [0, 1, -2]
    same_as_cpu(function_of(name), torch.tensor(values).to(dtype))


@pytest.mark.parametrize("name", ["abs", "neg", "sign", "sgn", "ceil", "round", "bitwise_not"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_integer_dtype_is_kept(same_as_cpu, name, dtype):
    same_as_cpu(function_of(name), torch.tensor([0, 1, 2, 100]).to(dtype))


@pytest.mark.parametrize(
    "name", "abs angle exp log sqrt sin cos tanh sgn reciprocal conj_physical sigmoid".split()
)
def test_complex_function_and_gradient(same_as_cpu, name):
    values = torch.complex(torch.linspace(-1, 2, 5), torch.linspace(0.5, -1.5, 5))
    same_as_cpu(function_of(name), values.requires_grad_())


@pytest.mark.parametrize("name", ["sqrt", "abs", "logical_not"])
@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_scalar_and_empty_tensors(same_as_cpu, name, shape):
    same_as_cpu(function_of(name), torch.full(shape, 0.25, requires_grad=True))


@pytest.mark.parametrize("decimals", [-2, 0, 3])
def test_round_to_decimals(same_as_cpu, decimals):
    same_as_cpu(lambda x: torch.round(x, decimals=decimals), torch.tensor([123.4567, -0.0015, 50]))


@pytest.mark.parametrize("options", [{}, {"nan": 1.0}, {"posinf": 2.0, "neginf": -3.0}])
def test_nan_to_num(same_as_cpu, options):
    same_as_cpu(lambda x: torch.nan_to_num(x, **options), torch.tensor(EDGES))


def test_logit_with_eps(same_as_cpu):
    x = torch.tensor([0.0, 0.05, 0.3, 0.97, 1.0], requires_grad=True)
    same_as_cpu(lambda x: torch.logit(x, eps=0.1), x)


def test_frexp(same_as_cpu):
    same_as_cpu(lambda x: tuple(torch.frexp(x)), torch.tensor([0.0, 1.0, -3.5, 100.25, 1e-8]))


def test_float64_is_not_narrowed(same_as_cpu):
    x = torch.linspace(0.1, 2, 7, dtype=torch.float64)
    for function in (torch.exp, torch.erf, torch.lgamma, torch.special.erfcx, torch.digamma):
        same_as_cpu(function, x, tolerance={"rtol": 1e-13, "atol": 1e-14})


def test_in_place_and_out_forms(same_as_cpu):
    def run(x):
        out = torch.empty_like(x)
        torch.exp(x, out=out)
        y = x.clone()
        y[1:].sqrt_()
        return out, y, y.zero_(), y.fill_(2.5)

    same_as_cpu(run, torch.tensor([1.0, 4.0, 9.0]))


def test_polygamma_and_mvlgamma(same_as_cpu):
    x = torch.tensor([2.5, 0.7, 5.0])
    same_as_cpu(lambda x: torch.polygamma(2, x), x)
    same_as_cpu(lambda x: torch.mvlgamma(x + 1, 3), x)


def test_float_becomes_uint8_modulo_256(same_as_cpu):
    x = torch.tensor([-1.0, -2.7, 0.5, 255.0, 256.0, 300.4])
    same_as_cpu(
        lambda x: (x.to(torch.uint8), torch.empty(6, dtype=torch.uint8).to(x.device).copy_(x)), x
    )
