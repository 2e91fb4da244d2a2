"""Read the sensors of this rank's GPU beside the training: power, energy, temperatures, memory errors.

One daemon thread per rank reads every few seconds and keeps the last answer; a scrape hands it out and never reads::

    watch = DeviceWatch(lambda: NvmlSensors(gpu_uuid="GPU-8c1e..."), interval_seconds=5.0)
    watch.current()  # the last Reading, or None when there is none or it is too old
    watch.close()

A driver call can hang for minutes and can raise anything. Either way no step waits and no exit is delayed: the
series disappear, ``exporter_errors_total{part="device"}`` counts each kind of failure once, training goes on. What
leaves its range is journaled (:mod:`lastgood.devices.excursions`); it never accuses anybody.

``nvml`` reads NVIDIA's library (extra ``nvidia``), ``rocm`` AMD's; ``fake_nvml`` is a hand-written fake that the demo
uses by name. Not covered: a driver call that hangs while it holds Python's interpreter lock.
"""

from __future__ import annotations

from lastgood.devices.choice import Devices, choose
from lastgood.devices.excursions import ExcursionRules, Limits
from lastgood.devices.reading import Reading, SensorError, Sensors
from lastgood.devices.watch import DeviceWatch, NoDevices

__all__ = [
    "DeviceWatch",
    "Devices",
    "ExcursionRules",
    "Limits",
    "NoDevices",
    "Reading",
    "SensorError",
    "Sensors",
    "choose",
]
