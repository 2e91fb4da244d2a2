"""Draw the demo in a terminal: live with rich, or as plain lines when the output is a file or a pipe.

Marks and words carry the meaning and the terminal's own colours repeat it: blue is good, yellow is doubt, red is
blame. Nothing is shown that the journal or the first rank's step lines do not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lastgood.state import Checkpoint
from lastgood.wording import TRUST_SYMBOLS, clock_text
from lastgood_console.demo.expected import expect
from lastgood_console.demo.options import FAKE_GPUS, FAULTS, Options
from lastgood_console.demo.reading import StepLine
from lastgood_console.demo.story import Health, Moment, Mood, Seat

STYLES: Final[Mapping[Mood, str]] = {"plain": "", "good": "blue", "doubt": "yellow", "bad": "bold red"}
TRUST_STYLES: Final = {"trusted": "blue", "suspect": "yellow", "tainted": "bold red"}
SEAT_MARKS: Final[Mapping[Health, tuple[str, str]]] = {
    "running": ("•", ""),
    "accused": ("◆", "bold red"),
    "candidate": ("◇", "yellow"),
    "ended": ("▪", "dim"),
}
MOMENTS_SHOWN = 14
STARTING: Final = "starting processes"
"""What an attempt does until its journal begins."""
_BARS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the screen shows at one moment."""

    options: Options
    attempt: int
    doing: str
    seconds: int = 0
    """Since the attempt's processes were started."""
    seats: Sequence[Seat] = ()
    lines: Sequence[StepLine] = ()
    passed: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    saves: Sequence[Checkpoint] = ()
    moments: Sequence[Moment] = ()


class Screen(Protocol):
    """A place to show views on."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, view: View) -> None:
        """Show ``view`` in place of the last one."""


class LiveScreen:
    """Redraw in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop")

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, view: View) -> None:
        """Show ``view`` in place of the last one."""
        self._live.update(drawn(view), refresh=True)


class PlainScreen:
    """Print what is new, one line each: every moment, the loss once in 25 steps, a sign of life while it starts."""

    EVERY_STEPS = 25
    EVERY_SECONDS = 10

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told: set[tuple[str, str]] = set()
        self._loss_told: set[tuple[int, int]] = set()
        self._waited: dict[int, int] = {}

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, view: View) -> None:
        """Print the moments and losses that were not printed yet."""
        self._show_start(view)
        for line in view.lines:
            if line.step % self.EVERY_STEPS == 0 and (view.attempt, line.step) not in self._loss_told:
                self._loss_told.add((view.attempt, line.step))
                self._console.print(f"          step {line.step:<4} loss {loss_text(line.loss)}", highlight=False)
        for moment in view.moments:
            if moment.key not in self._told:
                self._told.add(moment.key)
                self._console.print(moment_text(moment), highlight=False, soft_wrap=True)

    def _show_start(self, view: View) -> None:
        """Print that an attempt starts, and every ten seconds that it still does: loading torch takes a while."""
        if view.attempt not in self._waited:
            self._waited[view.attempt] = 0
            self._console.print(f"Attempt {view.attempt}: {STARTING}.", highlight=False)
        if view.doing == STARTING and view.seconds - self._waited[view.attempt] >= self.EVERY_SECONDS:
            self._waited[view.attempt] = view.seconds
            self._console.print(f"          still starting: {view.seconds} s", highlight=False)


def drawn(view: View) -> RenderableType:
    """Return the whole live picture."""
    parts: list[RenderableType] = [Text(""), _headline(view), _progress(view), Text(""), _seats(view.seats)]
    parts += [_checks(view.passed), _saves(view.saves), Text("")]
    parts += [moment_text(moment) for moment in view.moments[-MOMENTS_SHOWN:]]
    return Group(*parts)


def introduction(options: Options) -> list[str]:
    """Return what a reader must know beforehand, a sentence each."""
    ranks = f"{options.ranks_per_node} rank{'s' if options.ranks_per_node > 1 else ''}"
    lines = [
        f"Real training of a small model on text: {options.nodes} nodes with {ranks} each and one spare node, "
        f"{options.steps} steps.",
        "The nodes are simulated: names for groups of processes on this one machine. Times are UTC.",
        *_fake_gpus(options),
    ]
    if options.fault == "none":
        return [*lines, "No fault is injected."]
    where = "every rank" if options.fault == "reduce-all" else f"rank {options.rank} ({options.fault_node}, slot "
    where += "" if options.fault == "reduce-all" else f"{options.fault_slot})"
    step = f"{options.step}, the last of this run," if options.step == options.steps else f"{options.step}"
    lines.append(f"A fault is injected on purpose at step {step} on {where}: {FAULTS[options.fault]}.")
    return [*lines, *_caveats(options)]


def _fake_gpus(options: Options) -> list[str]:
    """Say that the GPUs are made up, and what one of them does."""
    if options.fake_gpu is None:
        return []
    line = "Every rank has a fake GPU (--fake-gpu): its name, power and temperature are made up, and no GPU is read."
    if options.fake_gpu == "steady":
        return [line]
    return [f"{line} After some seconds the one of rank {options.rank} misbehaves: {FAKE_GPUS[options.fake_gpu]}."]


def _caveats(options: Options) -> list[str]:
    """Return what this choice of options hides or changes."""
    if options.fault == "gradient" and not options.replay:
        return ["The replay check is off: this gradient is plausible, so nothing will notice it."]
    if options.replay and options.save_probe:
        return ["The replay also runs at every save (--save-probe), which is the product's default."]
    if options.fault == "gradient":
        return _without_probes(options)
    if not options.replay and options.fault in ("nan", "data"):
        return ["The replay check is off: nothing can tell a broken device from broken data."]
    return []


def _without_probes(options: Options) -> list[str]:
    """Say what the product's default would have found earlier, if it would."""
    now, probing = expect(options), expect(replace(options, save_probe=True))
    if now is None or probing is None or probing.step >= now.step:
        return []
    return [
        f"The product's default, a replay at every save too (--save-probe), would find this at save {probing.step}. "
        "It is switched off here, to show a suspect checkpoint."
    ]


def moment_text(moment: Moment) -> Text:
    """Return one line of what happened: clock (UTC), step, words."""
    step = "" if moment.step is None else f"step {moment.step}"
    return Text.assemble((f"{clock_text(moment.time)}  {step:<9}", "dim"), (moment.text, STYLES[moment.mood]))


def loss_text(loss: float | None) -> str:
    """Return a loss for people."""
    return "not a number" if loss is None else f"{loss:.3f}"


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """Return the newest values, thinned to ``width``, as a line of bars; × where there was no number."""
    thinned = [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    known = [value for value in thinned if value is not None]
    if not known:
        return "×" * len(thinned)
    low, span = min(known), max(known) - min(known) or 1.0
    return "".join("×" if v is None else _BARS[round((v - low) / span * (len(_BARS) - 1))] for v in thinned)


def trust_table(checkpoints: Sequence[Checkpoint], last_good: tuple[int, int, str] | None) -> Table:
    """Return the checkpoints with their trust and its reason; the last good one is marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("checkpoint", "trust", "why"):
        table.add_column(name, overflow="fold")
    for save in checkpoints:
        mark = f"{TRUST_SYMBOLS[save.trust]} {save.trust}"
        best = (save.attempt, save.step, save.path) == last_good
        why = f"Last good. {save.reason}" if best else save.reason
        table.add_row(save.path, Text(mark, TRUST_STYLES.get(save.trust, "")), why, style="bold" if best else "")
    return table


def _headline(view: View) -> Text:
    fault = view.options.fault
    what = "no fault" if fault == "none" else f"{fault} fault injected on purpose, step {view.options.step}"
    return Text.assemble(
        ("lastgood demo", "bold"), f"  attempt {view.attempt}, {view.doing}, {view.seconds} s  ", (f"({what})", "dim")
    )


def _progress(view: View) -> RenderableType:
    last = view.lines[-1] if view.lines else None
    step = last.step if last else 0
    grid = Table.grid(padding=(0, 2))
    losses = [line.loss for line in view.lines]
    loss = f"loss {loss_text(last.loss)} (rank 0)" if last else ""
    bar = ProgressBar(total=view.options.steps, completed=step, width=30, complete_style="", finished_style="")
    grid.add_row(f"step {step} of {view.options.steps}", bar, loss, Text(sparkline(losses, 30), "dim"))
    return grid


def _seats(seats: Sequence[Seat]) -> RenderableType:
    grid = Table.grid(padding=(0, 4))
    grid.add_row(*(_seat(seat) for seat in seats))
    return grid


def _seat(seat: Seat) -> Text:
    text = Text.assemble((seat.node, "bold" if seat.role == "used" else "dim"))
    if seat.role != "used":
        text.append(f" {seat.role}", "dim")
    for rank, health in seat.ranks:
        mark, style = SEAT_MARKS[health]
        word = f" {health}" if health in ("accused", "candidate") else ""
        text.append(f" {mark}{rank}{word}", style)
    return text


def _checks(passed: Mapping[str, tuple[int, str]]) -> Text:
    text = Text.assemble(("checks   ", "dim"))
    for check, (step, reason) in passed.items():
        word = f"not run ({reason})" if reason else "not yet" if step < 0 else f"passed at {step}"
        text.append(f"{check} {word}   ", "yellow" if reason else "")
    return text


def _saves(saves: Sequence[Checkpoint]) -> Text:
    text = Text.assemble(("saves    ", "dim"))
    attempt = 1
    for save in saves:
        if save.attempt != attempt:
            attempt = save.attempt
            text.append(f"| attempt {attempt}:  ", "dim")
        text.append(f"{save.step}{TRUST_SYMBOLS[save.trust]}  ", TRUST_STYLES.get(save.trust, ""))
    return text
