"""Measure the fingerprint: which faults it sees, how often it misses, and how fast it reads.

    python benchmarks/fingerprint.py [--quick] [--threads N] [--mebibytes N] [--no-compile] [--only PART]

Prints one JSON object:

- ``detection``: share of real changes that each sum notices, per type and fault class, beside the two obvious
  alternatives: ``torch.hash_tensor`` (an XOR) and the plain sum of the bit patterns
- ``collisions``: how often several changed words leave the fingerprint as it was, with the mix cut to 16 bits so that
  it can be measured; times 2^-16 it is the probability of the real 32-bit mix
- ``bandwidth``: GB/s and the share of ``x.sum()`` in the same process, medians over interleaved rounds, eager and
  compiled side by side, the compiled ones as ``compile_checks="on"`` runs them. Two lanes are what a save stores
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lastgood import fingerprint as fp
from lastgood import fingerprint_compiled
from lastgood.mixing import LANES, mix_, signed

ELEMENTS = 65_536
TYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
MANTISSA = {torch.bfloat16: 7, torch.float32: 23}
BITS = {torch.bfloat16: torch.int16, torch.float32: torch.int32}
WARP = 32
BATCH = 100_000


# detection: a fault changes the bits (a flat integer view) in place


def chance(high: int) -> int:
    return int(torch.randint(high, ()))


def any_bit(bits: Tensor) -> int:
    return chance(bits.element_size() * 8)


def mask(bits: Tensor, bit: int) -> int:
    width = bits.element_size() * 8
    return (1 << bit) - (1 << width if bit == width - 1 else 0)


def one_random_bit(bits: Tensor, mantissa: int) -> None:
    bits[chance(ELEMENTS)] ^= mask(bits, any_bit(bits))


def one_low_mantissa_bit(bits: Tensor, mantissa: int) -> None:
    bits[chance(ELEMENTS)] ^= 1 << chance(max(1, mantissa // 3))


def same_bit_in_two_elements(bits: Tensor, mantissa: int) -> None:
    bits[torch.randperm(ELEMENTS)[:2]] ^= mask(bits, any_bit(bits))


def lane_of_eight_warps(bits: Tensor) -> Tensor:
    start = chance(ELEMENTS - 8 * WARP)
    return bits[start : start + 8 * WARP : WARP]


def same_bit_in_a_lane_of_eight_warps(bits: Tensor, mantissa: int) -> None:
    lane_of_eight_warps(bits).bitwise_xor_(mask(bits, any_bit(bits)))


def stuck_at_zero_in_a_lane_of_eight_warps(bits: Tensor, mantissa: int) -> None:
    lane_of_eight_warps(bits).bitwise_and_(~mask(bits, any_bit(bits)))


def swap_of_two_elements(bits: Tensor, mantissa: int) -> None:
    pair = torch.randperm(ELEMENTS)[:2]
    bits[pair] = bits[pair.flip(0)]


def exchange_of_two_tiles_of_64(bits: Tensor, mantissa: int) -> None:
    tiles = bits.view(-1, 64)
    pair = torch.randperm(len(tiles))[:2]
    tiles[pair] = tiles[pair.flip(0)]


def one_value_times_ten(bits: Tensor, mantissa: int) -> None:
    values = bits.view(torch.float32 if mantissa == 23 else torch.bfloat16)
    values[chance(ELEMENTS)] *= 10


FAULTS: tuple[Callable[[Tensor, int], None], ...] = (
    one_random_bit,
    one_low_mantissa_bit,
    same_bit_in_two_elements,
    same_bit_in_a_lane_of_eight_warps,
    stuck_at_zero_in_a_lane_of_eight_warps,
    swap_of_two_elements,
    exchange_of_two_tiles_of_64,
    one_value_times_ten,
)

SUMS: dict[str, Callable[[Tensor], int]] = {
    "fingerprint": lambda x: int(fp.fingerprint(x, "weight")),
    "hash_tensor_xor": lambda x: int(torch.hash_tensor(x).view(torch.int64)),
    "bit_sum": lambda x: int(x.view(BITS[x.dtype]).sum(dtype=torch.int64)),
}


def detection_of(fault: Callable[[Tensor, int], None], dtype: torch.dtype, trials: int) -> dict[str, float]:
    """Return the share of trials that each sum noticed; a trial in which nothing changed is drawn again."""
    seen = dict.fromkeys(SUMS, 0)
    done = 0
    while done < trials:
        x = (torch.randn(ELEMENTS) * 0.02).to(dtype)
        before = {name: of(x) for name, of in SUMS.items()}
        bits = x.view(BITS[dtype])
        original = bits.clone()
        fault(bits, MANTISSA[dtype])
        if torch.equal(bits, original):
            continue
        done += 1
        for name, of in SUMS.items():
            seen[name] += of(x) != before[name]
    return {name: count / trials for name, count in seen.items()} | {"trials": trials}


def detection(trials: int) -> dict[str, Any]:
    return {
        name: {fault.__name__: detection_of(fault, dtype, trials) for fault in FAULTS} for name, dtype in TYPES.items()
    }


# collisions: the real mix, its results cut to 16 bits


def cut_sum(words: Tensor, index: Tensor) -> Tensor:
    """Return, per row of (word, index) pairs, the sum of the mixed words cut to 16 bits."""
    lane = LANES[0]
    mixed = words ^ (index * signed(lane.index) + signed(fp.key_of("weight")))
    mix_(mixed, torch.empty_like(mixed), lane)
    return mixed.to(torch.int16).sum(1, dtype=torch.int64)


def random_words(trials: int, changed: int) -> Tensor:
    return torch.randint(-(2**31), 2**31, (trials, changed), dtype=torch.int32)


def flipped(words: Tensor) -> Tensor:
    return words ^ (1 << torch.randint(0, 31, (len(words), 1), dtype=torch.int32))


def misses(trials: int, changed: int, change: Callable[[Tensor], Tensor]) -> int:
    start = torch.randint(0, 2**20, (trials, 1), dtype=torch.int32)
    index = start + WARP * torch.arange(changed, dtype=torch.int32)
    words = random_words(trials, changed)
    wrong = change(words)
    return int((cut_sum(words, index) == cut_sum(wrong, index)).sum())


def collisions_of(trials: int, changed: int, change: Callable[[Tensor], Tensor]) -> dict[str, float]:
    missed = sum(misses(BATCH, changed, change) for _ in range(trials // BATCH))
    return {"trials": trials, "missed": missed, "times_65536": missed / trials * 65_536}


def collisions(trials: int) -> dict[str, Any]:
    return {
        f"{changed} words, {what}": collisions_of(trials, changed, change)
        for changed in (2, 3, 8)
        for what, change in (
            ("new random words", lambda words: random_words(*words.shape)),
            ("one bit in a lane of warps", flipped),
        )
    }


# bandwidth


def ready_forms(x: Tensor, wanted: bool) -> tuple[dict[str, Callable[[Tensor], Any]], dict[str, Any]]:
    """Compile, and hold the results to the eager ones. Returns (forms, what is said about them)."""
    if not wanted:
        return {}, {"skipped": "switched off on the command line"}
    failures: list[Exception] = []
    eager = fp.measure(x, "weight")
    start = time.perf_counter()
    fingerprint_compiled.configure("on", failures.append)
    try:
        results = [fp.fingerprint(x, "weight"), *fp.measure(x, "weight")]
    finally:
        fingerprint_compiled.configure("off", failures.append)
    if failures:  # whatever the compiler says is the reason; the eager numbers stand
        return {}, {"skipped": f"not compiled: {type(failures[0]).__name__}: {str(failures[0])[:300]}"}
    agrees = int(results[0]) == int(results[1]) == int(eager[0]) and int(results[3]) == int(eager[2])
    forms = {
        "compiled fingerprint": compiled(lambda t: fp.fingerprint(t, "weight")),
        "compiled two lanes": compiled(lambda t: fp.digest_tensors([("weight", t)], lanes=2)),
        "compiled measure": compiled(lambda t: fp.measure(t, "weight")),
    }
    return forms, {"seconds_to_compile": time.perf_counter() - start, "agrees_with_eager": agrees}


def compiled(form: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Run a form with the compiled pass switched on, as ``compile_checks="on"`` does."""

    def run(x: Tensor) -> Any:
        fingerprint_compiled.configure("on", print)
        try:
            return form(x)
        finally:
            fingerprint_compiled.configure("off", print)

    return run


def seconds(form: Callable[[Tensor], Any], x: Tensor) -> float:
    start = time.perf_counter()
    form(x)
    if x.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def bandwidth(mebibytes: int, rounds: int, compiled: bool, device: str) -> dict[str, Any]:
    x = torch.randn(mebibytes * 2**18, device=device)
    forms: dict[str, Callable[[Tensor], Any]] = {
        "x.sum()": torch.sum,
        "eager fingerprint": lambda t: fp.fingerprint(t, "weight"),
        "eager measure": lambda t: fp.measure(t, "weight"),
    }
    more, said = ready_forms(x, compiled)
    forms |= more
    for form in forms.values():
        form(x)
    runs = [{name: seconds(form, x) for name, form in forms.items()} for _ in range(rounds)]
    return {"mebibytes": mebibytes, "rounds": rounds, "compile": said} | {
        name: {
            "gigabytes_per_second": x.nbytes / statistics.median(run[name] for run in runs) / 1e9,
            "share_of_sum": statistics.median(run["x.sum()"] / run[name] for run in runs),
        }
        for name in forms
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test in seconds; its numbers are no measurement")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled forms out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=("detection", "collisions", "bandwidth"), help="one part of the report")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    quick = given.quick
    report = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": given.threads,
        "device": given.device,
        "quick": quick,
    }
    parts: dict[str, Callable[[], Any]] = {
        "detection": lambda: detection(5 if quick else 300),
        "collisions": lambda: collisions(100_000 if quick else 10_000_000),
        "bandwidth": lambda: bandwidth(
            4 if quick else given.mebibytes, 2 if quick else 11, not (quick or given.no_compile), given.device
        ),
    }
    report |= {name: part() for name, part in parts.items() if given.only in (None, name)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
