"""The compiled pass against the eager one: bit for bit the same for every type, size, place and lane; what can fail."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.exporter.test_fingerprint import DTYPES, FLOATS, NONCONTIGUOUS, random_bits

import lastgood
from lastgood import fingerprint as fp
from lastgood import fingerprint_compiled as compiled
from lastgood.wrappers import is_compiled, is_compiled_again

pytestmark = pytest.mark.slow

ROW, LEAST = compiled.ROW, compiled.LEAST
SIZES = (LEAST - 1, LEAST, LEAST + 1, LEAST + ROW - 1, 3 * LEAST, 5 * ROW + 17)
OFFSETS = (0, 5, 2**32 - 40, 2**32 - 3 * ROW, 2**32, 3 * 2**32 - 1, 2**40 + 3)


@pytest.fixture
def failures() -> Iterator[list[Exception]]:
    """The compiled pass switched on, as ``compile_checks="on"`` does; what goes wrong with it is listed."""
    seen: list[Exception] = []
    compiled.configure("on", seen.append)
    yield seen
    compiled.configure("off", seen.append)


def both(tensor: torch.Tensor, lanes: int = 2, offset: int = 0) -> tuple[list[int], list[int]]:
    """Return the fingerprints of all lanes, compiled and eager."""

    def values() -> list[int]:
        return [int(fp.fingerprint(tensor, "w", lane=lane, offset=offset)) for lane in range(lanes)]

    first = values()
    compiled._process.broken = True
    try:
        return first, values()
    finally:
        compiled._process.broken = False


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equals_the_eager_form_for_every_type_and_size(dtype: torch.dtype, failures: list[Exception]) -> None:
    for size in (*SIZES, 0, 1, 17):
        ours, eager = both(random_bits(dtype, size, seed=size))
        assert ours == eager, size
    assert failures == []


@given(
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.complex64, torch.uint8)),
    size=st.integers(0, 40_000),
    offset=st.sampled_from(OFFSETS) | st.integers(0, 2**45),
    skip=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_eager_form_at_any_place(dtype: torch.dtype, size: int, offset: int, skip: int) -> None:
    compiled.configure("on", pytest.fail)  # type: ignore[arg-type]
    try:
        ours, eager = both(random_bits(dtype, size + skip)[skip:], offset=offset)
    finally:
        compiled.configure("off", pytest.fail)  # type: ignore[arg-type]
    assert ours == eager


@pytest.mark.parametrize("view", NONCONTIGUOUS)
def test_strides_do_not_matter(view: str, failures: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = NONCONTIGUOUS[view](random_bits(torch.float32, 4096))
    ours, eager = both(tensor)
    assert ours == eager
    assert failures == []


def test_both_lanes_in_one_read_are_those_of_two(failures: list[Exception]) -> None:
    tensor = random_bits(torch.float32, 20_000)
    digests = fp.digest_tensors([("w", tensor)], lanes=2)
    assert digests.values[0].tolist() == both(tensor)[1]
    assert {form[2] for form in compiled._process.forms} >= {(0, 1)}


def test_a_kernel_is_made_once_for_all_sizes(failures: list[Exception]) -> None:
    fp.fingerprint(torch.randn(LEAST), "w")
    forms = dict(compiled._process.forms)
    for size in (LEAST + 1, 7 * ROW, 100 * ROW + 3, 1_000_000):
        fp.fingerprint(torch.randn(size), "other")
    assert compiled._process.forms == forms


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_measures_what_the_eager_form_measures(dtype: torch.dtype, failures: list[Exception]) -> None:
    tensor = (torch.randn(50_003, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)
    ours = fp.measure(tensor, "w")
    compiled.configure("off", failures.append)
    eager = fp.measure(tensor, "w")
    assert int(ours[0]) == int(eager[0])
    assert float(ours[1]) == pytest.approx(float(eager[1]), rel=1e-6)
    assert int(ours[2]) == int(eager[2])
    assert failures == []


@pytest.mark.parametrize("scale", [1e30, 1e-30, 0.0, float("nan")])
def test_squares_out_of_the_range_of_float32_are_taken_again(scale: float, failures: list[Exception]) -> None:
    tensor = torch.full((3 * LEAST,), scale)
    expected = 3 * LEAST * float(torch.tensor(scale).double() ** 2)
    assert float(fp.measure(tensor, "w")[1]) == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_the_job_does_not_look_compiled_because_its_checks_are(failures: list[Exception]) -> None:
    compiled._process.forms.clear()
    fp.fingerprint(torch.randn(LEAST), "w")
    assert compiled._process.forms
    assert "torch._dynamo.convert_frame" in sys.modules
    assert not is_compiled(torch.nn.Linear(2, 2))
    assert not is_compiled_again()


def test_a_job_that_is_compiled_still_looks_so_and_neither_disturbs_the_other(failures: list[Exception]) -> None:
    fp.fingerprint(torch.randn(LEAST), "w")
    model = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    try:
        model(torch.randn(2, 4))
        assert is_compiled(torch.nn.Linear(2, 2))
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled._process.forms.clear()
            ours, eager = both(torch.randn(3 * LEAST))
        torch._dynamo.reset()
        again, _ = both(torch.randn(3 * LEAST))
    finally:
        torch._dynamo.reset()
    assert ours == eager
    assert again
    assert failures == []


def test_compiling_draws_no_random_number_and_leaves_autocast_and_autograd(failures: list[Exception]) -> None:
    compiled._process.forms.clear()
    torch.manual_seed(3)
    random.seed(3)
    before = torch.get_rng_state(), random.getstate()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, eager = both(torch.full((LEAST,), 1.5))
        assert torch.is_autocast_enabled("cpu")
    assert torch.is_grad_enabled()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert ours == eager


def test_without_a_compiler_it_is_said_once_and_the_eager_form_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Exception] = []
    monkeypatch.setenv("PATH", "")
    compiled._process.forms.clear()
    compiled.configure("on", seen.append)
    try:
        tensor = torch.randn(3 * LEAST)
        values = {int(fp.fingerprint(tensor, "w")) for _ in range(3)}
    finally:
        compiled.configure("off", seen.append)
    assert values == {int(fp.fingerprint(tensor, "w"))}
    assert [str(error).split(":")[0] for error in seen] == ["no C++ compiler"]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.bool, torch.int64], ids=str)
def test_what_is_prepared_is_what_a_tensor_of_the_type_needs(dtype: torch.dtype, failures: list[Exception]) -> None:
    compiled._process.forms.clear()
    compiled.prepare(torch.device("cpu"), [dtype, dtype])
    forms = set(compiled._process.forms)
    assert len(forms) == 1
    fp.fingerprint(torch.zeros(3 * LEAST).to(dtype), "w")
    assert set(compiled._process.forms) == forms
    assert failures == []


def test_a_backward_thread_takes_what_is_there_and_compiles_nothing(failures: list[Exception]) -> None:
    tensor = torch.randn(3 * LEAST)
    compiled._process.forms.clear()
    values: list[int] = []
    thread = threading.Thread(target=lambda: values.append(int(fp.fingerprint(tensor, "w"))))
    thread.start()
    thread.join()
    assert compiled._process.forms == {}
    assert values == both(tensor, lanes=1)[0]


def train_one_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **given: Any) -> None:
    monitor = lastgood.watch(model, optimizer, **given)
    try:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        monitor.close()
    finally:
        compiled.configure("off", print)
    assert monitor.step == 1


def test_a_watched_job_hears_once_that_its_checks_are_not_compiled_and_trains_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    compiled._process.forms.clear()
    registry = CollectorRegistry()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    others: dict[str, Any] = {"run_dir": tmp_path / "run", "metrics_port": 0, "registry": registry}
    with pytest.warns(RuntimeWarning, match="checks run without compilation .*no C\\+\\+ compiler") as said:
        train_one_step(model, optimizer, compile_checks="on", **others)
    assert sum("without compilation" in str(w.message) for w in said) == 1
    samples = [s for family in registry.collect() for s in family.samples if "exporter_errors_total" in s.name]
    assert [s.value for s in samples if s.labels.get("part") == "check"] == [1.0]


@pytest.mark.parametrize(
    ("choice", "device", "wanted"),
    [("auto", "cpu", False), ("auto", "cuda", True), ("on", "cpu", True), ("on", "cuda", True), ("off", "cuda", False)],
)
def test_which_devices_are_compiled_for(choice: str, device: str, wanted: bool) -> None:
    assert compiled.is_wanted(choice, device) is wanted
