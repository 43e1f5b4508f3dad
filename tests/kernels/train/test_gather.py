"""Minibatches hold the rows that were asked for, whatever their width, on any device."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cupydrive as cd
from cupydrive.algorithms.rows import RowGather
from cupydrive.codegen.layout import Layout
from cupydrive.errors import DeviceError
from cupydrive.executors import executor

pytestmark = pytest.mark.optimised

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 76, 127, 128, 129, 1000]


def rows_are_right(device, widths, size, chosen, seed=0):
    """Gather from float, int and bool columns of these widths; compare with torch's own
    indexing.
    """
    torch.manual_seed(seed)
    columns = {f"float {w}": torch.randn(size, w, device=device) for w in widths}
    columns |= {
        f"int {w}": torch.randint(-(2**31), 2**31 - 1, (size, w), dtype=torch.int32, device=device)
        for w in widths
    }
    columns |= {
        "flat": torch.randn(size, device=device),
        "mask": torch.rand(size, 3, device=device) < 0.5,
    }
    index = torch.randint(0, size, (chosen,), device=device)
    taken = RowGather(executor(device))(columns, index)
    assert taken.keys() == columns.keys()
    for name, column in columns.items():
        assert torch.equal(taken[name], column[index]), name


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_any_width(width):
    rows_are_right("cpu", [width], size=300, chosen=100)


@pytest.mark.full
@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.sampled_from(WIDTHS), min_size=1, max_size=4, unique=True),
    st.integers(1, 200),
    st.integers(1, 500),
)
def test_several_columns_at_once(widths, size, chosen):
    rows_are_right("cpu", widths, size, chosen)


@pytest.mark.quick(2)
@pytest.mark.gpu
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_any_width_on_a_gpu(width):
    rows_are_right("cuda", [width, 3], size=70_000, chosen=50_001)


def test_a_team_of_threads_is_refused_on_the_cpu():
    with pytest.raises(
        DeviceError, match=r"got a layout with a team of 4, expected 1 on the CPU\. Omit layout"
    ):
        cd.make("tag_grid", device="cpu", layout=Layout(4))
