"""Say how much a counter of the driver has grown since the first look at it. Pure.

A driver counts memory errors since it was loaded, for every job that the device has had. Published like that, an old
error would be new to each run that starts on the device, for a run is a series of its own that begins above 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Growth:
    """One counter. It may fall: the driver was loaded anew, or a person has cleared it."""

    _counted: float | None = field(init=False, default=None)
    _grown: float = field(init=False, default=0.0)

    def take(self, counted: float | None) -> float | None:
        """Return the growth since the first count, never less than before; None for no count.

        After a fall it goes on from the lower count. What was counted between that and the look before is not known.
        """
        if counted is None:
            return None
        before, self._counted = self._counted, counted
        if before is not None:
            self._grown += max(0.0, counted - before)
        return self._grown
