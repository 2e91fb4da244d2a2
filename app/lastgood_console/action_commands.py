"""Act on an incident: ``lastgood incident ACTION RUN INCIDENT [TEXT] --by NAME``. Works from the lean install."""

from __future__ import annotations

import argparse

from lastgood import wording
from lastgood.state import Incident
from lastgood_console.actions import INCIDENT_ACTIONS, Deed, to_incident
from lastgood_console.characters import one_line
from lastgood_console.people_journal import PeopleJournal, Written
from lastgood_console.run_selection import RUN_HELP, OpenRun, add_state_option, open_run, say, select_incident

_DONE = {
    "acknowledge": "acknowledged",
    "note": "noted",
    "cause": "cause noted",
    "close": "closed",
    "reopen": "reopened",
}


def incident(arguments: list[str]) -> int:
    """Journal what a person says or does about an incident. Returns 0."""
    meanings = "\n".join(f"  {action:<12} {meaning}" for action, meaning in INCIDENT_ACTIONS.items())
    parser = argparse.ArgumentParser(
        prog="lastgood incident",
        description="Say or do something about an incident. It goes into the run's journal with name and time, and "
        "stands in the timeline and in every export.",
        epilog=f"actions:\n{meanings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", metavar="ACTION", choices=[*INCIDENT_ACTIONS], help="see below")
    parser.add_argument("run", metavar="RUN", help=RUN_HELP.partition(";")[0])
    parser.add_argument("incident", metavar="INCIDENT", help="its id or the beginning of it")
    parser.add_argument("text", nargs="?", default="", metavar="TEXT", help="what to say; acknowledge goes without")
    add_name_option(parser)
    add_state_option(parser)
    options = parser.parse_args(arguments)
    run = open_run(options.run, options.state)
    about = select_incident(run.state, options.incident)
    perform(run, to_incident(run.state, about, options.action, options.by, options.text))
    now = select_incident(run.read_again(), about.id)
    say(f"{now.run} {now.id}: {_DONE[options.action]}. {_stands(now)}")
    return 0


def add_name_option(parser: argparse.ArgumentParser) -> None:
    """Ask for the name of whoever does something."""
    parser.add_argument("--by", required=True, metavar="NAME", help="your name, as the timeline is to show it")


def perform(run: OpenRun, deed: Deed) -> Written:
    """Journal a deed, and say where it is kept when that is not the run's journal."""
    journal = PeopleJournal(run.state_dir)
    try:
        written = journal.write(run.run_id, run.path, deed)
    finally:
        journal.close()
    if written.instead and run.path is not None:
        say(f"Kept in {written.file}: {written.instead}.")
    return written


def _stands(incident: Incident) -> str:
    """Say how an incident stands now, and what somebody said about it."""
    said = [f"It is {one_line(wording.state_phrase(incident))}"]
    if incident.acknowledged is not None:
        said.append(f"acknowledged by {one_line(incident.acknowledged.by)}")
    if incident.cause is not None:
        said.append(f"cause: {one_line(incident.cause.text)}")
    return f"{', '.join(said)}."
