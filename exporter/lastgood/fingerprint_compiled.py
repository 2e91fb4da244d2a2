"""The pass of :mod:`lastgood.fingerprint` as one fused kernel that torch's compiler makes: hash, squares, largest bits.

Words are looked at as rows of ``ROW``. A row's indices are one short ramp, loaded again for every row, plus one number
per row; so a kernel has nothing but loads, integer steps and sums in its inner loop, whose length is fixed, and one
kernel fits tensors of every size. Words of 16 bits are read two at a time: compilers do not vectorise them. What is no
whole row stays with the eager form. Its results are the same, bit for bit, but for the square sum, which is not exact
in either.

The graph goes to Inductor directly and never through Dynamo: no frame of the job is compiled or counted, its settings
(``set_stance``, a limit on recompilations) have no say here, and whether the job itself is compiled can still be told
(:func:`lastgood.wrappers.is_compiled`). The first use compiles, which takes seconds; later ones find Inductor's cache.

Whatever goes wrong, in the compiler or in what it made, is said once, and the eager form takes over for good.
"""

from __future__ import annotations

import random
import shutil
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.mixing import LANES, WORD, mixed, ramp, signed

ROW: Final = 2048
"""Words per row, or pairs of words of 16 bits. Half or four times as many are a third slower on a CPU."""
LEAST: Final = 4 * ROW
"""Words below which a call costs more than it saves."""
MOST: Final = 1 << 30
"""Words per call: inside a kernel 32 bits must be enough to count them."""
EXAMPLE_ROWS: Final = 2053
ALIGNMENT: Final = 16
"""Bytes that compiled code expects a tensor to start at a multiple of; it would copy another one."""

SQUARED: Final = (torch.float32, torch.bfloat16)
"""The types whose square sum and largest bits a kernel takes along."""

_Form = Callable[..., Any]


@dataclass(slots=True)
class _Process:
    """What this process has compiled. ``broken``: something went wrong once."""

    choice: str = "off"
    broken: bool = False
    on_failure: Callable[[Exception], None] = field(default=lambda error: None)
    forms: dict[tuple[object, ...], _Form] = field(default_factory=dict)


_process = _Process()


def configure(choice: str, on_failure: Callable[[Exception], None]) -> None:
    """Set for this process: ``auto`` (compile for accelerators), ``on`` (also for the CPU) or ``off``.

    ``on_failure(exception)`` is told, once, why the eager form takes over.
    """
    _process.choice, _process.on_failure, _process.broken = choice, on_failure, False


def prepare(device: torch.device, dtypes: Iterable[torch.dtype]) -> None:
    """Compile what the loop needs for tensors of these types, now and in this thread: a backward's cannot."""
    if not is_wanted(_process.choice, device.type):
        return
    for words in sorted({word_type(dtype) for dtype in dtypes}, key=str):
        try:
            _form(words, device, (0,), measure=False)
        except Exception as error:
            _give_up(error)
            return


def word_type(dtype: torch.dtype) -> torch.dtype:
    """Return the signed integer type of the words that elements of this type are read as."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    return {1: torch.int8, 2: torch.int16}.get(width, torch.int32)


def is_wanted(choice: str, device_type: str) -> bool:
    """Tell whether checks on such a device are compiled."""
    return choice == "on" or (choice == "auto" and device_type != "cpu")


@dataclass(frozen=True, slots=True)
class Part:
    """What a kernel read: the words (or elements) from ``low`` to ``high``, and what it found there.

    ``sums``: int64 [lanes]. ``squares`` and ``top``: 0-dim float64 and int64, of a measure alone.
    """

    low: int
    high: int
    sums: Tensor
    squares: Tensor | None = None
    top: Tensor | None = None


def sums(words: Tensor, index: int, key: int, lanes: Sequence[int]) -> Part | None:
    """Return the fingerprints of the whole rows among contiguous ``words``; None leaves all of it to the eager form.

    ``words``: signed integers of at most 32 bits. ``index``: flat index of the first one.
    """
    return _run(words, index, key, tuple(lanes), measure=False)


def measure(values: Tensor, index: int, key: int) -> Part | None:
    """Return lane 0, square sum and largest bits of the whole rows among contiguous floats of ``SQUARED`` types.

    On a CPU the rows are squared in float32: whoever calls looks whether the sum left its range.
    """
    return _run(values, index, key, (0,), measure=True)


def _run(words: Tensor, index: int, key: int, lanes: tuple[int, ...], *, measure: bool) -> Part | None:
    if _process.broken or not is_wanted(_process.choice, words.device.type):
        return None
    low, row = _misaligned(words), ROW * _per_cell(words.dtype)
    rows = min(words.numel() - low, MOST, WORD - (index + low) % WORD) // row
    if rows * row < LEAST:
        return None
    try:
        form = _form(words.dtype, words.device, lanes, measure)
        if form is None:
            return None
        high = low + rows * row
        given: list[Any] = [_cells(words[low:high]), rows]
        for lane in lanes:
            given += [ramp(ROW, words.device, lane), LANES[lane].seed(index + low, key)]
        out = form(*given)
    except Exception as error:
        _give_up(error)
        return None
    return Part(low, high, *out)


def _per_cell(dtype: torch.dtype) -> int:
    """Return how many words a kernel reads at once."""
    return 2 if dtype.itemsize == 2 else 1


def _cells(words: Tensor) -> Tensor:
    """View what a kernel reads as integers: two words of 16 bits as one of 32."""
    return words.view(torch.int8 if words.element_size() == 1 else torch.int32)


def _misaligned(words: Tensor) -> int:
    """Return how many words stand before the first aligned one."""
    return -words.data_ptr() % ALIGNMENT // words.element_size()


def _give_up(error: Exception) -> None:
    _process.broken = True
    _process.forms.clear()
    _process.on_failure(error)


def _form(dtype: torch.dtype, device: torch.device, lanes: tuple[int, ...], measure: bool) -> _Form | None:
    """Return the compiled form; None in another thread than the main one (a backward's) while there is none."""
    key = (dtype, device, lanes, measure, torch.get_num_threads() if device.type == "cpu" else 0)
    found = _process.forms.get(key)
    if found is None and threading.current_thread() is threading.main_thread():
        found = _process.forms[key] = _compile(dtype, device, lanes, measure)
    return found


def _graph(dtype: torch.dtype, lanes: tuple[int, ...], measure: bool) -> Callable[..., list[Tensor]]:
    """Return the pass as a function of (cells, rows, then ramp and seed of each lane)."""
    together = _per_cell(dtype)

    def run(cells: Tensor, rows: int, *numbers: Any) -> list[Tensor]:
        table = cells.as_strided((rows, ROW), (ROW, 1))
        words = [(table << 16) >> 16, table >> 16] if together == 2 else [table.to(torch.int32)]  # both keep the sign
        place = torch.arange(rows, dtype=torch.int32, device=cells.device)
        totals = []
        for lane, steps, seed in zip(lanes, numbers[::2], numbers[1::2], strict=True):
            factor = LANES[lane].index
            seeds = steps * together + (place * signed(together * ROW * factor) + seed).unsqueeze(1)
            hashes = [mixed(w ^ (seeds + signed(i * factor)), LANES[lane]) for i, w in enumerate(words)]
            totals.append(_added([h.sum(1, dtype=torch.int64).sum() for h in hashes]))
        out = [torch.stack(totals)]
        return out + [_squares(table, dtype), _top(words, dtype)] if measure else out

    return run


def _squares(table: Tensor, dtype: torch.dtype) -> Tensor:
    """Square in float32 on a CPU, where float64 takes twice the time; rows keep its rounding at 1e-7."""
    halves = [table << 16, table & -65536] if dtype is torch.bfloat16 else [table]  # bfloat16: the high half of float32
    values = [half.view(torch.float32) for half in halves]
    wide = [v if table.device.type == "cpu" else v.double() for v in values]
    return _added([(w * w).sum(1).sum(dtype=torch.float64) for w in wide])


def _added(one_or_two: Sequence[Tensor]) -> Tensor:
    return one_or_two[0] if len(one_or_two) == 1 else one_or_two[0] + one_or_two[1]


def _top(words: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    largest = [(w & torch.iinfo(_SIGNED[dtype.itemsize]).max).amax(1).amax() for w in words]
    return torch.stack(largest).amax().to(torch.int64)


_SIGNED: Final = {2: torch.int16, 4: torch.int32}


def _compile(dtype: torch.dtype, device: torch.device, lanes: tuple[int, ...], measure: bool) -> _Form:
    """Trace with numbers that stand for any, and compile. Raises whatever is missing."""
    with _alone(device):
        from torch import _inductor as inductor
        from torch._inductor import config
        from torch.fx.experimental.proxy_tensor import make_fx

        if device.type == "cpu":
            _require_compiler(config.cpp.cxx[1])
        words = torch.zeros(EXAMPLE_ROWS * ROW * _per_cell(dtype), dtype=dtype, device=device)
        given: list[Any] = [_cells(words), EXAMPLE_ROWS]
        for lane in lanes:  # different numbers: equal ones would be taken for the same
            given += [ramp(ROW, device, lane), 7919 + lane]
        with config.patch(compile_threads=1):  # no pool of processes beside the job
            graph = make_fx(_graph(dtype, lanes, measure), tracing_mode="symbolic")(*given)
            compiled = inductor.standalone_compile(graph, given, dynamic_shapes="from_graph")
            compiled(*given)  # a kernel is loaded, and tuned, at its first call
    return compiled


def _require_compiler(compiler: str) -> None:
    if shutil.which(compiler) is None:
        raise RuntimeError(f"no C++ compiler: {compiler} is not on the path; install it, or set compile_checks to off")


@contextmanager
def _alone(device: torch.device) -> Iterator[None]:
    """Leave the job's generators, autocast and autograd as they were, and take no warning of the compiler's for it."""
    python = random.getstate()
    enabled = torch.is_autocast_enabled(device.type)
    torch.set_autocast_enabled(device.type, False)
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_autocast_enabled(device.type, enabled)
        random.setstate(python)
