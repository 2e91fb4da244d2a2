"""A device is read beside the training: what it says, what a broken driver does, and that nobody waits for it."""

from __future__ import annotations

import inspect
import os
import re
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.devices import DeviceWatch, NoDevices, Reading, SensorError, choose, nvml
from lastgood.devices.choice import allowed, visible_mig
from lastgood.devices.fake_nvml import MODES, FakeNvml, fake_uuid
from lastgood.devices.growth import Growth
from lastgood.devices.nvml import NvmlSensors
from lastgood.devices.reading import errors
from lastgood.devices.rocm import AmdSensors

UUID = fake_uuid("node-b", 1)


def fake(mode: str = "steady", seconds: float = 30.0, **more: Any) -> FakeNvml:
    """Return a fake whose clock stands still, ``seconds`` after its start."""
    now = iter([0.0])
    return FakeNvml("node-b", 1, mode=mode, clock=lambda: next(now, seconds), **more)


def wait_for(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)
    return found


# --- what NVML says ---------------------------------------------------------------------------------------------------


def test_a_device_in_order_answers_with_every_sensor_in_base_units() -> None:
    reading = NvmlSensors(UUID, library=fake()).read()
    assert 590 < (reading.power_watts or 0) < 700
    assert 3.6e6 < (reading.energy_joules or 0) < 200e6
    assert 50 < (reading.core_celsius or 0) < (reading.memory_celsius or 0) < 80
    assert reading.margin_celsius == 87 - (reading.core_celsius or 0)
    assert (reading.ecc_uncorrected, reading.problems) == (0, ())


def test_energy_grows_by_power_times_time() -> None:
    joules = [NvmlSensors(UUID, library=fake(seconds=s)).read().energy_joules or 0 for s in (0, 60, 120)]
    assert joules[1] - joules[0] == pytest.approx(joules[2] - joules[1])
    assert 590 < (joules[1] - joules[0]) / 60 < 700


def test_the_same_seed_and_second_give_the_same_numbers_and_another_device_others() -> None:
    def look(node: str, seed: int) -> Reading:
        now = iter([0.0])
        library = FakeNvml(node, 1, seed=seed, clock=lambda: next(now, 12.0))
        return NvmlSensors(library.uuid, library=library).read()

    assert look("node-b", 3) == look("node-b", 3)
    assert look("node-b", 3) != look("node-c", 3)
    assert look("node-b", 3) != look("node-b", 4)


def test_a_sensor_that_the_device_has_not_is_absent_and_no_failure() -> None:
    reading = NvmlSensors(UUID, library=fake("bare")).read()
    assert reading == Reading(core_celsius=reading.core_celsius, pci_bus_id="00000000:11:00.0")
    assert reading.core_celsius


@pytest.mark.parametrize("said", [0, -3])
def test_a_margin_of_zero_or_less_falls_back_to_the_threshold(said: int) -> None:
    library = fake()
    library.nvmlDeviceGetMarginTemperature = lambda handle: said  # type: ignore[method-assign]
    reading = NvmlSensors(UUID, library=library).read()
    assert reading.margin_celsius == 87 - (reading.core_celsius or 0)


@pytest.mark.parametrize("threshold", [0, 20])
def test_a_margin_that_nothing_tells_is_unknown_and_not_zero(threshold: int) -> None:
    library = fake()
    library.nvmlDeviceGetMarginTemperature = lambda handle: 0  # type: ignore[method-assign]
    library.nvmlDeviceGetTemperatureThreshold = lambda handle, kind: threshold  # type: ignore[method-assign]
    assert NvmlSensors(UUID, library=library).read().margin_celsius is None


@pytest.mark.parametrize(
    ("function", "blank", "field"),
    [
        ("nvmlDeviceGetTotalEnergyConsumption", 2**63, "energy_joules"),
        ("nvmlDeviceGetTotalEccErrors", 9223372036854775794, "ecc_uncorrected"),
        ("nvmlDeviceGetTotalEccErrors", 2**32 - 1, "ecc_uncorrected"),
        ("nvmlDeviceGetTotalEccErrors", 2**31 - 1, "ecc_uncorrected"),
        ("nvmlDeviceGetTemperature", 345, "core_celsius"),
        ("nvmlDeviceGetPowerUsage", 0, "power_watts"),
    ],
)
def test_an_answer_that_no_device_can_give_is_unknown(function: str, blank: int, field: str) -> None:
    library = fake()
    setattr(library, function, lambda *args: blank * 1_000 if "Energy" in function else blank)
    assert getattr(NvmlSensors(UUID, library=library).read(), field) is None


def test_a_sensor_that_fails_alone_is_told_and_the_others_still_answer() -> None:
    class NVMLError_Timeout(Exception):  # noqa: N801, N818
        pass

    def slow(handle: str) -> int:
        raise NVMLError_Timeout("took too long")

    library = fake()
    library.nvmlDeviceGetPowerUsage = slow  # type: ignore[method-assign]
    reading = NvmlSensors(UUID, library=library).read()
    assert reading.problems == ("power Timeout: took too long",)
    assert reading.power_watts is None
    assert reading.core_celsius


def test_a_lost_device_fails_as_a_whole() -> None:
    sensors = NvmlSensors(UUID, library=fake("lost", onset_seconds=20, seconds=10))
    library = fake("lost")
    library.nvmlInit()
    sensors._nvml = library
    with pytest.raises(SensorError, match="the GPU is lost") as failed:
        sensors.read()
    assert failed.value.kind == "GpuIsLost"


def test_a_device_that_has_no_such_uuid_is_looked_for_on_the_bus() -> None:
    library = fake()
    with pytest.raises(SensorError, match="no device GPU-1"):
        NvmlSensors("GPU-1", library=library)
    library.nvmlDeviceGetHandleByPciBusId = lambda place: place  # type: ignore[attr-defined]
    assert NvmlSensors("GPU-1", "00000000:10:00.0", library=library).read().power_watts


def test_a_mig_instance_has_its_gpus_temperatures_and_no_power_of_its_own() -> None:
    library = fake()
    asked: list[str] = []

    def instance(uuid: str) -> str:
        asked.append(uuid)
        return "mig"

    library.nvmlDeviceGetHandleByUUID = instance  # type: ignore[method-assign]
    library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle = lambda mig: UUID  # type: ignore[attr-defined]
    reading = NvmlSensors("MIG-1", library=library).read()
    assert asked == ["MIG-1"]
    assert (reading.power_watts, reading.energy_joules) == (None, None)
    assert reading.core_celsius


def test_the_real_pynvml_has_every_name_that_is_called() -> None:
    import pynvml

    used = set(re.findall(r"_nvml\.(\w+)", inspect.getsource(nvml)))
    assert len(used) > 12
    assert [name for name in used if not hasattr(pynvml, name)] == []


# --- the thread -------------------------------------------------------------------------------------------------------


def watch(library: FakeNvml, told: list[tuple[str, str]], **more: Any) -> DeviceWatch:
    settings = {"interval_seconds": 0.01, "stale_seconds": 0.3, **more}
    return DeviceWatch(lambda: NvmlSensors(UUID, library=library),
                       on_problem=lambda kind, text: told.append((kind, text)), **settings)  # fmt: skip


def test_the_last_reading_is_there_until_it_closes() -> None:
    told: list[tuple[str, str]] = []
    library = FakeNvml("node-b", 1)
    watching = watch(library, told)
    assert wait_for(watching.current).core_celsius
    watching.close()
    watching.close()
    assert watching.current() is None
    assert told == []
    assert library._inits == 0


def test_memory_errors_count_from_the_first_look_and_never_fall() -> None:
    counts = iter([7, 2**32 - 1, 7, 8, 0, 0, 2, 2**64 - 1])
    published: list[float | None] = []

    class Counting:
        """Opens anew after every second look, as after a lost device."""

        def __init__(self) -> None:
            self.looks = 0

        def read(self) -> Reading:
            self.looks += 1
            if self.looks > 2:
                raise SensorError("GpuIsLost", "gone")
            return Reading(ecc_uncorrected=errors(next(counts, 2)))

        def close(self) -> None:
            pass

    watching = DeviceWatch(Counting, interval_seconds=0.01,
                           on_reading=lambda reading, at: published.append(reading.ecc_new))  # fmt: skip
    wait_for(lambda: len(published) >= 9)
    watching.close()
    assert published[:9] == [0, None, 0, 1, 1, 1, 3, None, 3]


@given(st.lists(st.none() | st.integers(0, 20)))
def test_growth_is_what_was_added_and_never_falls(counts: list[int | None]) -> None:
    growth = Growth()
    found = [grown for count in counts if (grown := growth.take(count)) is not None]
    known = [count for count in counts if count is not None]
    assert found == sorted(found)
    assert found[:1] == [0] * bool(known)
    assert sum(found[-1:]) == sum(max(0, b - a) for a, b in pairwise(known))


def test_a_hanging_driver_makes_the_reading_too_old_and_is_counted_once() -> None:
    told: list[tuple[str, str]] = []
    watching = watch(FakeNvml("node-b", 1, mode="hang", onset_seconds=0.1), told)
    assert wait_for(watching.current)
    wait_for(lambda: watching.current() is None)
    time.sleep(0.1)
    assert [watching.current() for _ in range(5)] == [None] * 5
    assert [kind for kind, _ in told] == ["hanging"]


def test_closing_does_not_wait_for_a_driver_that_hangs() -> None:
    watching = watch(FakeNvml("node-b", 1, mode="hang", onset_seconds=0.0), [])
    time.sleep(0.05)
    began = time.monotonic()
    watching.close()
    assert time.monotonic() - began < 0.6


def test_asking_never_waits_while_the_driver_hangs() -> None:
    watching = watch(FakeNvml("node-b", 1, mode="hang", onset_seconds=0.0), [], stale_seconds=60.0)
    began = time.monotonic()
    assert all(watching.current() is None for _ in range(1_000))
    assert time.monotonic() - began < 0.5
    watching.close()


def test_a_driver_that_answers_again_is_read_again() -> None:
    class Slow:
        def __init__(self) -> None:
            self.release = threading.Event()
            self.looks = 0

        def read(self) -> Reading:
            self.looks += 1
            if self.looks == 2:
                self.release.wait()
            return Reading(core_celsius=float(self.looks))

        def close(self) -> None:
            pass

    told: list[str] = []
    slow = Slow()
    watching = DeviceWatch(lambda: slow, interval_seconds=0.01, stale_seconds=0.1,
                           on_problem=lambda kind, text: told.append(kind))  # fmt: skip
    wait_for(lambda: slow.looks == 2)
    wait_for(lambda: watching.current() is None and told == ["hanging"])
    slow.release.set()
    assert wait_for(watching.current).core_celsius > 2
    watching.close()


def test_a_lost_device_is_counted_once_and_opened_again_when_it_is_back() -> None:
    told: list[tuple[str, str]] = []
    library = FakeNvml("node-b", 1, mode="lost", onset_seconds=0.0)
    watching = watch(library, told)
    wait_for(lambda: told)
    time.sleep(0.1)
    assert [kind for kind, _ in told] == ["GpuIsLost"]
    library.mode = "steady"
    assert wait_for(watching.current).power_watts
    watching.close()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_a_library_raises_is_counted_once_and_the_watch_goes_on(
    raised: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    class Raising(FakeNvml):
        looks = 0

        def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
            self.looks += 1
            if self.looks % 2:
                raise raised
            return super().nvmlDeviceGetPowerUsage(handle)

        def nvmlShutdown(self) -> None:
            super().nvmlShutdown()
            raise raised

    told: list[tuple[str, str]] = []
    library = Raising("node-b", 1)
    watching = watch(library, told, stale_seconds=5.0)
    assert wait_for(watching.current).power_watts
    wait_for(lambda: library.looks > 4)
    watching.close()
    assert not watching._thread.is_alive()
    assert [kind for kind, _ in told] == [raised.__name__]
    assert capfd.readouterr().err == ""


def test_a_driver_that_fails_every_other_time_leaves_the_last_answer_and_one_count() -> None:
    told: list[tuple[str, str]] = []
    watching = watch(FakeNvml("node-b", 1, mode="flaky", onset_seconds=0.0), told, stale_seconds=2.0)
    wait_for(watching.current)
    seen = [watching.current() for _ in range(20) if not time.sleep(0.01)]
    assert all(seen)
    assert [kind for kind, _ in told] == ["GpuIsLost"]
    watching.close()


def test_a_missing_library_says_what_to_install_once() -> None:
    told: list[tuple[str, str]] = []

    def missing() -> NvmlSensors:
        raise SensorError("no pynvml", "pip install 'lastgood[nvidia]'")

    watching = DeviceWatch(missing, interval_seconds=0.01, on_problem=lambda *problem: told.append(problem))
    wait_for(lambda: told)
    time.sleep(0.1)
    watching.close()
    assert told == [("no pynvml", "pip install 'lastgood[nvidia]'")]


def test_a_reader_of_readings_that_raises_keeps_the_sensors_open() -> None:
    told: list[tuple[str, str]] = []

    def broken(reading: Reading, at: float) -> None:
        raise OSError("disk full")

    library = FakeNvml("node-b", 1)
    watching = watch(library, told, on_reading=broken)
    wait_for(lambda: library._looks > 3)
    assert [kind for kind, _ in told] == ["excursion"]
    assert library._inits == 1
    watching.close()


def test_a_forked_child_has_no_reading_and_closes_at_once() -> None:
    watching = watch(FakeNvml("node-b", 1), [], stale_seconds=60.0)
    wait_for(watching.current)
    child = os.fork()
    if child == 0:
        empty = watching.current() is None
        watching.close()
        os._exit(0 if empty else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watching.current()
    watching.close()


def test_where_no_thread_can_be_started_it_is_said_and_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    told: list[tuple[str, str]] = []
    monkeypatch.setattr(threading.Thread, "start", no_more)
    watching = watch(FakeNvml("node-b", 1), told)
    assert watching.current() is None
    watching.close()
    assert [kind for kind, _ in told] == ["thread"]


def test_nothing_is_watched_without_a_device() -> None:
    nothing = NoDevices()
    assert nothing.current() is None
    nothing.close()


# --- which device -----------------------------------------------------------------------------------------------------


def test_without_a_gpu_there_is_nothing_to_read() -> None:
    found = choose("auto", backend="none", gpu_uuid="", pci_bus_id="", node="n", slot=0)
    assert (found.gpu_uuid, found.open_sensors, found.fake) == ("", None, False)


@pytest.mark.parametrize("backend", ["cuda", "rocm"])
def test_switched_off_a_gpu_keeps_its_name_and_is_not_read(backend: Any) -> None:
    found = choose("off", backend=backend, gpu_uuid="GPU-1", pci_bus_id="00000000:10:00.0", node="n", slot=0)
    assert (found.gpu_uuid, found.pci_bus_id, found.open_sensors) == ("GPU-1", "00000000:10:00.0", None)


def test_the_fake_has_a_name_that_says_so_and_never_takes_a_real_gpus_place() -> None:
    found = choose("fake:hot", backend="none", gpu_uuid="", pci_bus_id="", node="node-b", slot=1)
    assert found.fake
    assert found.gpu_uuid == UUID
    real = choose("fake", backend="cuda", gpu_uuid="GPU-1", pci_bus_id="", node="node-b", slot=1)
    assert (real.gpu_uuid, real.open_sensors) == ("GPU-1", None)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_the_fake_can_be_set(mode: str) -> None:
    assert allowed(f"fake:{mode}")
    assert allowed(f"fake:{mode}@0.5")


def test_other_settings_cannot() -> None:
    assert not any(allowed(setting) for setting in ("", "on", "fake:cold", "nvml", "fake:hot@soon", "fake:hot@-1"))
    with pytest.raises(ValueError, match="mode 'cold': expected one of steady"):
        FakeNvml("n", 0, mode="cold")


# --- AMD --------------------------------------------------------------------------------------------------------------


class FakeAmdSmi:
    """A FAKE of ``amdsmi`` with one device, by its documented interface; ``None`` is a sensor it has not."""

    AmdSmiTemperatureType = SimpleNamespace(JUNCTION="junction", VRAM="vram")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current", CRITICAL="critical")

    def __init__(self, answers: dict[Any, Any] | None = None) -> None:
        self.answers: dict[str, Any] = {
            "power": {"socket_power": 540, "current_socket_power": 540, "average_socket_power": "N/A"},
            "energy": {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
            ("junction", "current"): 61, ("junction", "critical"): 100, ("vram", "current"): 70,
            "ecc": {"correctable_count": 7, "uncorrectable_count": 2, "deferred_count": 0},
        } | (answers or {})  # fmt: skip
        self.users = 0

    def amdsmi_init(self) -> None:
        self.users += 1

    def amdsmi_shut_down(self) -> None:
        self.users -= 1

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["other", "mine"]

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        return {"other": "0000:0c:00.0", "mine": "0000:23:00.0"}[handle]

    def amdsmi_get_gpu_enumeration_info(self, handle: str) -> dict[str, Any]:
        return {"hip_id": 0, "hip_uuid": {"other": "GPU-1234", "mine": "GPU-abcd"}[handle]}

    def _answer(self, key: Any) -> Any:
        if self.answers[key] is None:
            raise RuntimeError("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")
        if isinstance(self.answers[key], Exception):
            raise self.answers[key]
        return self.answers[key]

    def amdsmi_get_power_info(self, handle: str) -> Any:
        return self._answer("power")

    def amdsmi_get_energy_count(self, handle: str) -> Any:
        return self._answer("energy")

    def amdsmi_get_temp_metric(self, handle: str, sensor: str, metric: str) -> Any:
        return self._answer((sensor, metric))

    def amdsmi_get_gpu_total_ecc_count(self, handle: str) -> Any:
        return self._answer("ecc")


def amd(answers: dict[Any, Any] | None = None) -> Reading:
    return AmdSensors("00000000:23:00.0", library=FakeAmdSmi(answers or {})).read()


def test_an_amd_device_is_found_by_its_place_and_answers_in_base_units() -> None:
    wanted = Reading(power_watts=540, energy_joules=30.6, core_celsius=61, memory_celsius=70, margin_celsius=39,
                     ecc_uncorrected=2, pci_bus_id="0000:23:00.0")  # fmt: skip
    assert amd() == wanted


def test_older_releases_name_the_energy_power_and_say_thousandths_of_a_degree() -> None:
    energy = {"power": 1_000_000, "counter_resolution": 15.3}
    reading = amd({"energy": energy, ("junction", "current"): 61_000, ("junction", "critical"): 100_000})
    assert (reading.energy_joules, reading.core_celsius, reading.margin_celsius) == (15.3, 61, 39)


def test_a_sensor_that_an_amd_device_has_not_is_absent_and_no_failure() -> None:
    reading = amd({"ecc": None, "power": {"socket_power": "N/A", "average_socket_power": 300}})
    assert (reading.ecc_uncorrected, reading.power_watts, reading.problems) == (None, 300, ())


def test_an_amd_device_of_which_nothing_answers_is_lost() -> None:
    gone = OSError("AMDSMI_STATUS_DRM_ERROR")
    library = FakeAmdSmi(dict.fromkeys(FakeAmdSmi().answers, gone))
    with pytest.raises(SensorError, match="DRM_ERROR"):
        AmdSensors("0000:23:00.0", library=library).read()


def test_an_amd_device_at_an_unknown_place_is_not_guessed() -> None:
    for place, uuid in (("", ""), ("", "GPU-1"), ("0000:99:00.0", "GPU-AB-CD")):
        with pytest.raises(SensorError, match="amdsmi knows no GPU at"):
            AmdSensors(place, uuid, library=FakeAmdSmi())


def test_an_amd_device_whose_place_torch_does_not_tell_is_found_by_its_hip_uuid() -> None:
    assert AmdSensors("", "GPU-AB-CD", library=FakeAmdSmi()).read().pci_bus_id == "0000:23:00.0"


def test_the_mig_instance_of_a_process_is_the_visible_one() -> None:
    assert visible_mig("MIG-1, MIG-2", 1) == "MIG-2"
    assert [visible_mig(text, 0) for text in ("", "0,1", "GPU-1")] == ["", "", ""]
    assert visible_mig("MIG-1", 1) == ""
