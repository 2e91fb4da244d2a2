"""Cases of the rules about ranks and devices that stand out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.alerts.promtool_cases import Alert, Case
from tests.alerts.world import NOT_A_NUMBER, RUN, Values, World, dcgm, gpu, healthy, own_node_on_targets, rank_series

CLEAN: Final = healthy()
THREE: Final = "rank 3 on node node-b (GPU GPU-0003)"
SENTINEL: Final = 9_223_372_036_854_775_794
"""What dcgm-exporter says for what it cannot read."""


def on_node(value: float, worst: str, node: str = "node-b", run: str = RUN, **sides: str) -> Alert:
    return Alert({"run": run, "node": node}, value, {"worst": worst, **sides})


def fleet(nodes: int, run: str = RUN) -> World:
    """Return a run with one rank on each of so many nodes."""
    return healthy(run, tuple(f"node-{number:02d}" for number in range(nodes)), per_node=1)


def each(world: World, name: str, values: Mapping[int, Values], run: str = RUN, **labels: str) -> World:
    for rank, value in values.items():
        world = world.rank(rank, name, value, run=run, **labels)
    return world


def named(count: int, value: float) -> tuple[Alert, ...]:
    """Return one alert for each of the first nodes of a fleet."""
    return tuple(on_node(value, f"rank {n} on node node-{n:02d} (GPU {gpu(n)})", f"node-{n:02d}") for n in range(count))


def _norm(value: Values, world: World = CLEAN, rank: int = 3, run: str = RUN) -> World:
    return world.rank(rank, "grad_norm", value, run=run, stage="local")


def _norms(world: World, values: Mapping[int, Values]) -> World:
    return each(world, "grad_norm", values, stage="local")


_EQUAL: Final = _norms(CLEAN, dict.fromkeys(range(4), 1.0))
"""Every norm is 1: the spread is the floor, 0.01."""
_WIDE: Final = _norms(healthy(nodes=("node-a", "node-b", "node-c")), {0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6})
"""Norms 1 to 6: median 3.5, median distance 1.5, robust deviation 2.2239."""
_HUNDREDS: Final = fleet(6).all_of("lastgood_grad_norm", 100)
"""Every norm is 100: the spread is 1, so that boundaries are exact."""
_MOVED: Final = [rank_series(RUN, rank, f"node-{rank}", 0, 1).all_of("lastgood_grad_norm", 1) for rank in (0, 1)]
_NORM: Final = [
    Case(
        "GradNormOutlier",
        "fires for a norm far from the others",
        _norm(2, _EQUAL),
        (on_node(100, THREE),),
    ),
    Case("GradNormOutlier", "is silent in health", CLEAN),
    Case("GradNormOutlier", "is silent when all agree exactly", _EQUAL),
    Case("GradNormOutlier", "is silent below the boundary", _norm(1.0799, _EQUAL)),
    Case("GradNormOutlier", "fires above the boundary", _norm(1.081, _EQUAL), (on_node(8, THREE),)),
    Case(
        "GradNormOutlier",
        "fires for a norm that is too small",
        _norm(0.5, _EQUAL),
        (on_node(50, THREE),),
    ),
    Case("GradNormOutlier", "goes by the spread of the ranks where they differ", _norm(21, _WIDE, rank=5)),
    Case(
        "GradNormOutlier",
        "fires beyond the spread of ranks that differ",
        _norm(22, _WIDE, rank=5),
        (on_node(8, "rank 5 on node node-c (GPU GPU-0005)", "node-c"),),
    ),
    Case("GradNormOutlier", "accuses neither of two ranks that differ", _norm(100, healthy(nodes=("node-b",)), rank=1)),
    Case("GradNormOutlier", "waits a minute", _norm("1+0x29 2+0x60", _EQUAL), at=930),
    Case(
        "GradNormOutlier",
        "has waited a minute",
        _norm("1+0x28 2+0x60", _EQUAL),
        (on_node(100, THREE),),
        at=930,
    ),
    Case(
        "GradNormOutlier",
        "stays five minutes after the norm is normal",
        _norm("1+0x9 2+0x15 1+0x60", _EQUAL),
        (on_node(100, THREE),),
        at=1050,
    ),
    Case(
        "GradNormOutlier", "ends five minutes after the norm is normal", _norm("1+0x9 2+0x15 1+0x60", _EQUAL), at=1110
    ),
    Case(
        "GradNormOutlier",
        "does not compare the reduced norm",
        each(_EQUAL, "grad_norm", {0: 1, 1: 1, 2: 1, 3: 9}, stage="reduced"),
    ),
    Case("GradNormOutlier", "is silent about a norm that is not a number", _norm(NOT_A_NUMBER, _EQUAL)),
    Case(
        "GradNormOutlier",
        "finds the outlier among norms that are not numbers",
        _norm(2, _norm(NOT_A_NUMBER, _EQUAL, rank=0)),
        (on_node(100, THREE),),
    ),
    Case("GradNormOutlier", "is silent without norms", CLEAN.drop("grad_norm")),
    Case(
        "GradNormOutlier",
        "names the worst rank of each node",
        _norms(
            healthy(nodes=("node-a", "node-b", "node-c", "node-d")), {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1.5, 6: 2, 7: 3}
        ),
        (
            on_node(50, "rank 5 on node node-c (GPU GPU-0005)", "node-c"),
            on_node(200, "rank 7 on node node-d (GPU GPU-0007)", "node-d"),
        ),
    ),
    Case(
        "GradNormOutlier",
        "compares a rank with its own run",
        _EQUAL.plus(healthy("other").all_of("lastgood_grad_norm", 50)),
    ),
    Case(
        "GradNormOutlier",
        "keeps runs apart",
        _norm(2, _EQUAL).plus(
            _norm(75, healthy("other").all_of("lastgood_grad_norm", 50), rank=1, run="other").ledger(
                "last_good_step", 25, run="other"
            )
        ),
        (
            on_node(100, THREE),
            on_node(
                50,
                "rank 1 on node node-a (GPU GPU-0001)",
                "node-a",
                "other",
                last_good="Last good checkpoint to resume from: step 25.",
            ),
        ),
    ),
    Case(
        "GradNormOutlier",
        "names the GPU as unknown when the rank's place is not",
        _norm(2, _EQUAL).drop("rank_info", rank="3"),
        (on_node(100, "unknown"),),
    ),
    Case(
        "GradNormOutlier",
        "keeps what it says of two runs on the same nodes apart",
        _norm(2, _EQUAL).plus(_norm(75, healthy("other").all_of("lastgood_grad_norm", 50), run="other")),
        (on_node(100, THREE), on_node(50, THREE, run="other")),
    ),
    Case("GradNormOutlier", "is silent at the boundary", _norms(_HUNDREDS, {3: 108})),
    Case("GradNormOutlier", "is silent at the lower boundary", _norms(_HUNDREDS, {3: 92})),
    Case(
        "GradNormOutlier",
        "fires for a norm somewhat too small",
        _norms(_HUNDREDS, {3: 90}),
        (on_node(10, "rank 3 on node node-03 (GPU GPU-0003)", "node-03"),),
    ),
    Case(
        "GradNormOutlier",
        "does not compare a small reduced norm",
        each(_EQUAL, "grad_norm", {0: 1, 1: 1, 2: 1, 3: 0.1}, stage="reduced"),
    ),
    Case(
        "GradNormOutlier",
        "compares local norms with local norms",
        each(_norm(2, _EQUAL), "grad_norm", dict.fromkeys(range(4), 9), stage="reduced"),
        (on_node(100, THREE),),
    ),
    Case(
        "GradNormOutlier",
        "compares small norms",
        _norm(0.4, _EQUAL.all_of("lastgood_grad_norm", 0.2)),
        (on_node(100, THREE),),
    ),
    Case(
        "GradNormOutlier",
        "fires for a norm where all others are 0",
        _norm(1, _EQUAL.all_of("lastgood_grad_norm", 0)),
        (on_node(1 / 1e-30, THREE),),
    ),
    Case(
        "GradNormOutlier",
        "counts a rank at each place where it reports",
        _norms(_EQUAL, {2: 2, 3: 3}).plus(_MOVED[0]).plus(_MOVED[1]),
        (on_node(200, THREE),),
    ),
    Case(
        "GradNormOutlier",
        "fires for a norm of 0 where all others are not",
        _norm(0, _EQUAL),
        (on_node(100, THREE),),
    ),
]


def _margin(value: Values, world: World = CLEAN, rank: int = 3) -> World:
    return world.rank(rank, "gpu_temperature_margin_celsius", value)


def hot(left: int, node: str = "node-b", worst: str = THREE, run: str = RUN) -> Alert:
    return on_node(left, worst, node, run)


_MARGIN: Final = [
    Case("ThermalMarginLow", "fires with two degrees left", _margin(2), (hot(2),)),
    Case("ThermalMarginLow", "is silent in health", CLEAN),
    Case("ThermalMarginLow", "is silent at the boundary", _margin(5)),
    Case("ThermalMarginLow", "fires just below the boundary", _margin(4), (hot(4),)),
    Case("ThermalMarginLow", "fires beyond the limit", _margin(-3), (on_node(-3, "unknown"),)),
    Case("ThermalMarginLow", "waits five minutes", _margin("20+0x20 2+0x60"), at=900),
    Case("ThermalMarginLow", "has waited five minutes", _margin("20+0x19 2+0x60"), (hot(2),), at=900),
    Case(
        "ThermalMarginLow", "stays five minutes after the margin is back", _margin("2+0x12 20+0x60"), (hot(2),), at=660
    ),
    Case("ThermalMarginLow", "ends five minutes after the margin is back", _margin("2+0x12 20+0x60"), at=690),
    Case("ThermalMarginLow", "is silent about a margin that is not a number", _margin(NOT_A_NUMBER)),
    Case("ThermalMarginLow", "is silent without our device series", CLEAN.drop("gpu_temperature_margin_celsius")),
    Case(
        "ThermalMarginLow",
        "is silent with dcgm-exporter alone, which has no margin",
        dcgm(CLEAN.drop("gpu_temperature_margin_celsius"), "DCGM_FI_DEV_GPU_TEMP", {3: 95}),
    ),
    Case("ThermalMarginLow", "names the hottest of a node", _margin(4, _margin(1), rank=2), (hot(1),)),
    Case(
        "ThermalMarginLow",
        "names two nodes",
        _margin(4, _margin(1), rank=0),
        (hot(1), hot(4, "node-a", "rank 0 on node node-a (GPU GPU-0000)")),
    ),
    Case(
        "ThermalMarginLow",
        "keeps what it says of two runs on the same nodes apart",
        _margin(1).plus(healthy("other").rank(3, "gpu_temperature_margin_celsius", 2, run="other")),
        (hot(1), hot(2, run="other")),
    ),
]

_POWERS: Final = each(CLEAN, "gpu_power_watts", dict.fromkeys(range(4), 600))


def _without_devices(world: World) -> World:
    return world.drop("gpu_power_watts").drop("gpu_ecc_uncorrected_total").drop("gpu_temperature_margin_celsius")


_NO_DEVICES: Final = _without_devices(CLEAN)
_DCGM_POWER: Final = {0: 600, 1: 600, 2: 600, 3: 300}
_USAGE: Final = "DCGM_FI_DEV_POWER_USAGE"


def _power(value: Values, world: World = _POWERS, rank: int = 3) -> World:
    return world.rank(rank, "gpu_power_watts", value)


def off(percent: int, node: str = "node-b", worst: str = THREE, run: str = RUN) -> Alert:
    return on_node(percent, worst, node, run)


_UNTIL_900: Final = "300+0x30 stale"
_POWER: Final = [
    Case("PowerDeviates", "fires for half the power of the others", _power(300), (off(50),)),
    Case("PowerDeviates", "is silent in health", CLEAN),
    Case("PowerDeviates", "is silent at the boundary", _power(750)),
    Case("PowerDeviates", "fires just above the boundary", _power(756), (off(26),)),
    Case("PowerDeviates", "fires just below", _power(444), (off(26),)),
    Case("PowerDeviates", "waits ten minutes", _power("600+0x9 300+0x60"), at=840),
    Case("PowerDeviates", "has waited ten minutes", _power("600+0x9 0+0x60"), (off(100),), at=1050),
    Case("PowerDeviates", "is silent about swings that average out", _power(" ".join(["300+0x0 900+0x0"] * 30))),
    Case("PowerDeviates", "is silent about power that is not a number", _power(NOT_A_NUMBER)),
    Case(
        "PowerDeviates",
        "finds it among powers that are not numbers",
        _power(300, _power(NOT_A_NUMBER, fleet(4).all_of("lastgood_gpu_power_watts", 600), rank=0)),
        (off(50, "node-03", "rank 3 on node node-03 (GPU GPU-0003)"),),
    ),
    Case("PowerDeviates", "is silent without any device series", _NO_DEVICES),
    Case("PowerDeviates", "takes the power from dcgm-exporter", dcgm(_NO_DEVICES, _USAGE, _DCGM_POWER), (off(50),)),
    Case(
        "PowerDeviates",
        "takes it from dcgm-exporter where targets have a node label of their own",
        own_node_on_targets(dcgm(_NO_DEVICES, _USAGE, _DCGM_POWER)),
        (off(50),),
    ),
    Case(
        "PowerDeviates",
        "fires for too much power by dcgm-exporter",
        dcgm(_NO_DEVICES, _USAGE, {**_DCGM_POWER, 3: 900}),
        (off(50),),
    ),
    Case(
        "PowerDeviates",
        "fires somewhat below the others by dcgm-exporter",
        dcgm(_NO_DEVICES, _USAGE, {**_DCGM_POWER, 3: 420}),
        (off(30),),
    ),
    Case(
        "PowerDeviates",
        "fires for no power by dcgm-exporter",
        dcgm(_NO_DEVICES, _USAGE, {**_DCGM_POWER, 3: 0}),
        (off(100),),
    ),
    Case(
        "PowerDeviates",
        "takes it from dcgm-exporter for two runs beside one with series of its own",
        dcgm(_NO_DEVICES.plus(_without_devices(healthy("other"))).plus(healthy("third")), _USAGE, _DCGM_POWER),
        (off(50), off(50, run="other")),
    ),
    Case(
        "PowerDeviates",
        "does not mind how dcgm-exporter calls its host",
        dcgm(_NO_DEVICES, _USAGE, _DCGM_POWER, "hostname"),
        (off(50),),
    ),
    Case(
        "PowerDeviates",
        "does not believe the numbers that stand for no reading",
        dcgm(_NO_DEVICES, _USAGE, {**_DCGM_POWER, 3: SENTINEL}),
    ),
    Case(
        "PowerDeviates",
        "takes a slice of a GPU once",
        dcgm(dcgm(_NO_DEVICES, _USAGE, _DCGM_POWER), _USAGE, {3: 200}, "hostname"),
        (off(50),),
    ),
    Case("PowerDeviates", "prefers our own series to dcgm-exporter's", dcgm(_POWERS, _USAGE, _DCGM_POWER)),
    Case(
        "PowerDeviates",
        "takes from dcgm-exporter what ours lacks",
        dcgm(_POWERS.drop("gpu_power_watts", rank="3"), _USAGE, {3: 300}),
        (off(50),),
    ),
    Case("PowerDeviates", "is silent about a GPU that no rank has", dcgm(_POWERS, _USAGE, {9: 10})),
    Case(
        "PowerDeviates",
        "names the worst of a node",
        each(
            healthy(nodes=("node-b", "node-a", "node-c")).all_of("lastgood_gpu_power_watts", 600),
            "gpu_power_watts",
            {0: 300, 1: 150},
        ),
        (off(75, worst="rank 1 on node node-b (GPU GPU-0001)"),),
    ),
    Case(
        "PowerDeviates",
        "compares a rank with its own run",
        _POWERS.plus(healthy("other").all_of("lastgood_gpu_power_watts", 100)),
    ),
    Case(
        "PowerDeviates",
        "keeps what it says of two runs on the same nodes apart",
        _power(300).plus(
            healthy("other").all_of("lastgood_gpu_power_watts", 100).rank(3, "gpu_power_watts", 60, run="other")
        ),
        (off(50), off(40, run="other")),
    ),
    Case("PowerDeviates", "stays five minutes after the power is normal", _power(_UNTIL_900), (off(50),), at=1440),
    Case("PowerDeviates", "ends five minutes after the power is normal", _power(_UNTIL_900), at=1620),
    Case("PowerDeviates", "does not believe ten kilowatts", dcgm(_NO_DEVICES, _USAGE, {**_DCGM_POWER, 3: 10_000})),
    Case(
        "PowerDeviates",
        "believes a big device",
        dcgm(_NO_DEVICES, _USAGE, {0: 8_000, 1: 8_000, 2: 8_000, 3: 4_000}),
        (off(50),),
    ),
    Case(
        "PowerDeviates",
        "looks back five minutes at dcgm-exporter",
        dcgm(_NO_DEVICES, _USAGE, {**_DCGM_POWER, 3: "0+0x9 600+0x60"}),
    ),
]

_COUNT: Final = "gpu_ecc_uncorrected_total"
_DBE: Final = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"


def _ecc(value: Values, world: World = CLEAN, rank: int = 3) -> World:
    return world.rank(rank, _COUNT, value)


def errors(count: int, node: str = "node-b", worst: str = THREE, run: str = RUN) -> Alert:
    return on_node(count, worst, node, run)


_ECC: Final = [
    Case("UncorrectedEcc", "fires at the boundary, for one error", _ecc("0+0x9 1+0x150"), (errors(1),)),
    Case("UncorrectedEcc", "is silent in health", CLEAN),
    Case("UncorrectedEcc", "fires when the first sample is already 1", _ecc(1), (errors(1),)),
    Case("UncorrectedEcc", "ends after an hour", _ecc("0+0x9 1+0x150"), at=4500),
    Case("UncorrectedEcc", "still fires within the hour", _ecc("0+0x9 1+0x150"), (errors(1),), at=3600),
    Case("UncorrectedEcc", "counts what was added, not what was there", _ecc("5+0x125 7+0x30"), (errors(2),), at=3900),
    Case("UncorrectedEcc", "does not take a reset for an error", _ecc("5+0x125 0+0x30"), at=4500),
    Case(
        "UncorrectedEcc",
        "does not take one scrape that failed an hour ago for new errors",
        _ecc("3+0x19 stale 3+0x139"),
        at=4215,
    ),
    Case(
        "UncorrectedEcc",
        "does not take one failed scrape of dcgm-exporter for new errors",
        dcgm(_NO_DEVICES, _DBE, {3: "3+0x19 stale 3+0x139"}),
        at=4215,
    ),
    Case("UncorrectedEcc", "counts errors after a reset", _ecc("5+0x125 2+0x30"), (errors(2),), at=3900),
    Case("UncorrectedEcc", "is silent about a count that is not a number", _ecc(NOT_A_NUMBER)),
    Case("UncorrectedEcc", "is silent without any device series", _NO_DEVICES),
    Case("UncorrectedEcc", "takes the count from dcgm-exporter", dcgm(_NO_DEVICES, _DBE, {0: 0, 3: 2}), (errors(2),)),
    Case(
        "UncorrectedEcc",
        "takes it from dcgm-exporter where targets have a node label of their own",
        own_node_on_targets(dcgm(_NO_DEVICES, _DBE, {3: 2})),
        (errors(2),),
    ),
    Case(
        "UncorrectedEcc",
        "does not mind how dcgm-exporter calls its host",
        dcgm(_NO_DEVICES, _DBE, {3: 2}, "hostname"),
        (errors(2),),
    ),
    Case(
        "UncorrectedEcc",
        "does not believe the numbers that stand for no reading",
        dcgm(_NO_DEVICES, _DBE, {3: SENTINEL}),
    ),
    Case(
        "UncorrectedEcc",
        "does not take the end of no reading for an error",
        dcgm(_NO_DEVICES, _DBE, {3: f"{SENTINEL}+0x9 0+0x150"}),
        at=4500,
    ),
    Case(
        "UncorrectedEcc",
        "prefers our own series to dcgm-exporter's",
        dcgm(CLEAN, _DBE, {3: 2}),
    ),
    Case("UncorrectedEcc", "takes one error from dcgm-exporter", dcgm(_NO_DEVICES, _DBE, {3: 1}), (errors(1),)),
    Case("UncorrectedEcc", "does not count what dcgm-exporter had", dcgm(_NO_DEVICES, _DBE, {3: 5}), at=4500),
    Case(
        "UncorrectedEcc",
        "counts what dcgm-exporter counts after a reset to one less",
        dcgm(_NO_DEVICES, _DBE, {3: "5+0x125 4+0x30"}),
        (errors(4),),
        at=3900,
    ),
    Case("UncorrectedEcc", "does not believe a billion errors", dcgm(_NO_DEVICES, _DBE, {3: "1000000000+0x160"})),
    Case(
        "UncorrectedEcc",
        "believes a little less",
        dcgm(_NO_DEVICES, _DBE, {3: "999999999+0x160"}),
        (errors(999_999_999),),
    ),
    Case(
        "UncorrectedEcc",
        "takes from dcgm-exporter what ours lacks",
        dcgm(CLEAN.drop(_COUNT, run=RUN, rank="3").plus(healthy("other")), _DBE, {2: 2, 3: 2}),
        (errors(2),),
    ),
    Case(
        "UncorrectedEcc",
        "does not add up nodes that had errors before",
        each(fleet(9), _COUNT, {**dict.fromkeys(range(8), 5), 8: "0+0x125 2+0x30"}),
        (errors(2, "node-08", "rank 8 on node node-08 (GPU GPU-0008)"),),
        at=3900,
    ),
    Case("UncorrectedEcc", "is silent about a GPU that no rank has", dcgm(_NO_DEVICES, _DBE, {9: 2})),
    Case(
        "UncorrectedEcc",
        "names the worst of a node, and two nodes",
        _ecc(1, _ecc(2, _ecc(4), rank=2), rank=0),
        (errors(4), errors(1, "node-a", "rank 0 on node node-a (GPU GPU-0000)")),
    ),
    Case(
        "UncorrectedEcc",
        "stays five minutes after the rank has died",
        _ecc("0+0x9 1+0x15 stale"),
        (errors(1),),
        at=1050,
    ),
    Case("UncorrectedEcc", "still fires after the bridge has ended", _ecc("0+0x9 1+0x15 stale"), (errors(1),), at=1500),
    Case("UncorrectedEcc", "ends a quarter of an hour after the rank has died", _ecc("0+0x9 1+0x15 stale"), at=1740),
    Case(
        "UncorrectedEcc",
        "knows a rank that has moved to another node",
        CLEAN.drop_ranks(3).plus(rank_series(RUN, 3, "node-c", 0, 1).all_of(f"lastgood_{_COUNT}", 1)),
        (errors(1, "node-c", "rank 3 on node node-c (GPU GPU-0003)"),),
    ),
    Case(
        "UncorrectedEcc",
        "keeps what it says of two runs on the same nodes apart",
        _ecc(1).plus(healthy("other").rank(3, _COUNT, 2, run="other")),
        (errors(1), errors(2, run="other")),
    ),
    Case("UncorrectedEcc", "counts errors after a reset to one less", _ecc("5+0x125 4+0x30"), (errors(4),), at=3900),
]


def _soon(cases: list[Case]) -> list[Case]:
    """Look after two minutes where the time does not matter: fewer evaluations of long queries."""
    return [replace(case, at=120) if case.at == 900 else case for case in cases]


CASES: Final = [*_soon(_NORM), *_MARGIN, *_POWER, *_ECC]
