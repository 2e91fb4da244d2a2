"""Projections of slices: equal to those of each slice alone, and blind to no exchange of two slices."""

from __future__ import annotations

import math

import pytest
import torch

from lastgood.projection import project, project_only
from lastgood.slice_projection import project_slices, weights_of


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("count", "length"), [(1, 7), (3, 64), (4, 65), (2, 1000), (5, 1), (3, 1 << 19)])
def test_each_slice_as_if_it_were_alone(count: int, length: int, dtype: torch.dtype) -> None:
    x = torch.randn(count * length, generator=torch.Generator().manual_seed(count)).to(dtype)
    slices, squares = project_slices(x, count, key=5)
    alone = torch.stack([project_only(part, key=5) for part in x.chunk(count)])
    norm = float(squares) ** 0.5
    assert slices.dtype == torch.float64
    assert float((slices - alone).abs().max()) <= 1e-6 * norm
    assert float(squares) == pytest.approx(float(project(x, key=5)[1]), rel=1e-9)


def test_two_slices_that_changed_places_are_seen() -> None:
    x = torch.randn(4 * 100)
    weights = weights_of(4, x.device)
    before, _ = project_slices(x, 4, key=0)
    swapped, _ = project_slices(x.view(4, 100)[[1, 0, 2, 3]].reshape(-1), 4, key=0)
    assert len(set(weights.tolist())) == 4
    assert abs(float(weights @ (before - swapped))) > 1e-3


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 199, 150])
def test_what_is_not_finite_stays_so(value: float, place: int) -> None:
    x = torch.ones(200)
    x[place] = value
    assert not math.isfinite(float(project_slices(x, 2, key=0)[0].sum()))


def test_a_buffer_without_elements_is_zero() -> None:
    slices, squares = project_slices(torch.empty(0), 3, key=0)
    assert (slices.tolist(), float(squares)) == ([0.0, 0.0, 0.0], 0.0)


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot project"):
        project_slices(torch.ones(8, dtype=torch.int32), 2, key=0)
