"""Show a drill in a terminal: a bar while it runs, then what was found, by site and by kind of fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lastgood.drill.plan import Trial
from lastgood.drill.score import Outcome
from lastgood.drill.summary import COLUMNS_MEAN, Tally, controls, kinds, rows, tally, targets

EVERY: Final = 20
"""Trials between two lines where no bar can be drawn."""
HEADS: Final = ("trials", "inside", "found", "by", "median", "worst", "right", "wrong", "nobody", "windows", "outside",
                "no effect", "escapes")  # fmt: skip


def followed(outcomes: Iterable[Outcome], trials: Sequence[Trial], options: Any, console: Console) -> Iterator[Outcome]:
    """Pass the outcomes on and show how far the drill has come."""
    nodes = f"{options.ranks} nodes with one rank each, simulated on this machine"
    console.print(f"Real training of small models, {len(trials)} jobs: {nodes}.", highlight=False)
    console.print("Faults are injected on purpose; what the ranks saw themselves is the truth.", highlight=False)
    if not console.is_terminal:
        yield from _lines(outcomes, len(trials), console)
        return
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*bar, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=len(trials))
        for number, outcome in enumerate(outcomes, 1):
            following = trials[number].name if number < len(trials) else "done"
            progress.update(task, completed=number, description=following)
            yield outcome


def _lines(outcomes: Iterable[Outcome], count: int, console: Console) -> Iterator[Outcome]:
    for number, outcome in enumerate(outcomes, 1):
        if number % EVERY == 0 or number == count:
            console.print(f"{number} of {count}", highlight=False)
        yield outcome


def say_results(outcomes: Sequence[Outcome], about: Mapping[str, Any], console: Console) -> None:
    """Print the score: by site, by kind, the controls, the targets, and what missed one."""
    faults = [o for o in outcomes if o not in controls(outcomes)]
    if faults:
        console.print(_table("site", {**rows(outcomes), "all": tally(faults)}))
        console.print(_table("kind", kinds(outcomes)))
        console.print(COLUMNS_MEAN, style="dim", highlight=False)
    clean = controls(outcomes)
    steps = f"{sum(o.steps for o in clean):,} steps"
    console.print(f"Controls: {len(clean)} jobs without a fault, {steps}, {sum(o.false for o in clean)} findings.",
                  highlight=False)  # fmt: skip
    console.print(f"{len(outcomes)} jobs in {about['seconds']} s, seed {about['seed']}.", highlight=False)
    for target in targets(outcomes):
        mark, style = ("✓", "blue") if target.reached else ("✗", "bold red")
        console.print(Text.assemble((mark, style), f" {target.name}: {target.met} of {target.of}"))
    for outcome in outcomes:
        for complaint in outcome.complaints:
            console.print(Text.assemble(("✗ ", "bold red"), f"{outcome.trial}: {complaint}"))


def _table(name: str, tallies: Mapping[str, Tally]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column(name, no_wrap=True)
    for head in HEADS:
        table.add_column(head, justify="left" if head == "by" else "right", no_wrap=head != "by")
    for row, found in tallies.items():
        table.add_row(row, *cells(found), style="bold" if row == "all" else "")
    return table


def cells(found: Tally) -> list[str]:
    """Return the cells of one row, under :data:`HEADS`."""
    return [
        str(found.trials),
        str(found.inside),
        str(found.detected) if not found.missed else f"{found.detected} ✗",
        " ".join(found.checks) or "–",
        "–" if found.latency_median is None else f"{found.latency_median:g}",
        "–" if found.latency_worst is None else str(found.latency_worst),
        str(found.right),
        str(found.wrong),
        str(found.undecided),
        f"{found.windows_right} of {found.windows}",
        f"{found.beyond + found.outside}",
        str(found.no_effect),
        str(found.escapes),
    ]
