"""Distances and interval searches agree with the CPU."""

import pytest
import torch

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def points(*shape):
    return (torch.arange(float(torch.Size(shape).numel())) * 0.37).sin().reshape(shape)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
def test_cdist(same_as_cpu, p):
    a, b = points(2, 3, 5).requires_grad_(), points(4, 5).cos().requires_grad_()
    same_as_cpu(lambda a, b: torch.cdist(a, b, p), a, b, tolerance=TOLERANCE)


def test_cdist_of_many_points_by_matrix_product(same_as_cpu):
    a, b = points(30, 5).requires_grad_(), points(4, 5).cos().requires_grad_()
    same_as_cpu(torch.cdist, a, b, tolerance={"rtol": 1e-3, "atol": 1e-3})


def test_cdist_of_equal_points_has_no_gradient_there(same_as_cpu):
    a = points(3, 4).requires_grad_()
    same_as_cpu(lambda a: torch.cdist(a, a.detach()), a, tolerance=TOLERANCE)


def test_cdist_of_nothing(same_as_cpu):
    same_as_cpu(torch.cdist, points(0, 3), points(2, 3))


@pytest.mark.parametrize("p", [1.0, 2.0, 2.5, float("inf")])
def test_pdist(same_as_cpu, p):
    x = points(5, 3).requires_grad_()
    same_as_cpu(lambda x: torch.nn.functional.pdist(x, p), x, tolerance=TOLERANCE)


BOUNDARIES = torch.tensor([0.0, 1.0, 1.0, 2.0, 5.0])
VALUES = torch.tensor([[-1.0, 0.0, 0.5, 1.0], [2.0, 5.0, 9.0, float("nan")]])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("out_int32", [False, True])
def test_bucketize_and_searchsorted(same_as_cpu, right, out_int32):
    options = {"right": right, "out_int32": out_int32}
    same_as_cpu(lambda v, b: torch.bucketize(v, b, **options), VALUES, BOUNDARIES)
    same_as_cpu(lambda b: torch.bucketize(1.0, b, **options), BOUNDARIES)
    same_as_cpu(lambda b: torch.searchsorted(b, 1.0, **options), BOUNDARIES)


def test_searchsorted_in_rows_with_sorter(same_as_cpu):
    rows = torch.tensor([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]])

    def run(rows, values):
        sorter = rows.argsort(-1)
        return torch.searchsorted(rows, values, sorter=sorter, side="right")

    same_as_cpu(run, rows, torch.tensor([[2.0, 0.0], [8.5, 9.5]]))


def test_searchsorted_among_many_boundaries(same_as_cpu):
    same_as_cpu(torch.bucketize, torch.tensor([3.5, 99.0, -1.0, 50.0]), torch.arange(100.0))


def test_histc(same_as_cpu):
    x = torch.tensor([0.0, 1.0, 1.5, 2.0, 4.0, 9.0])
    same_as_cpu(lambda x: torch.histc(x, 4), x)
    same_as_cpu(lambda x: torch.histc(x, 4, 1, 3), x)
    same_as_cpu(lambda x: torch.histc(x, 4), torch.full((3,), 2.0))
