"""`./run demo`: the main job end to end, through Airflow. Checks each claim, and ends with 1 if one does not hold."""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console

from demo.airflow import StoodStill
from demo.story import FROM_NOW, ClaimFailed, Story
from services import control, environment, jars
from services.__main__ import engine_starting
from services.errors import ServiceError
from services.site import Site

console = Console(highlight=False)

# Where to look at what the chapters have done.
PAGES = {
    "": "all streams",
    "streams/cdn_logs": "which offsets are where",
    "streams/cdn_logs/messages": "what became of a message",
    "streams/cdn_logs/audits": "the audits, and the repair",
    f"streams/{FROM_NOW}/dead-letters": "dead letters to redrive",
    f"streams/{FROM_NOW}": "the backfill",
}


def main() -> int:
    # There are no options. Without this, --help would start everything.
    argparse.ArgumentParser(prog="./run demo", description="The main job end to end, through Airflow.").parse_args()
    began = time.monotonic()
    site = Site.from_environment()
    try:
        jars.fetch(site.jars)
        console.rule("[bold]1. The servers")
        with engine_starting(site):
            control.up(site, report=console.print)
        story = Story(site, console)
        for number, chapter in enumerate(story.chapters(), start=2):
            console.rule(f"[bold]{number}. {chapter.__doc__}")
            chapter()
    except (ServiceError, ClaimFailed, StoodStill) as problem:
        console.print(f"[bold red]{type(problem).__name__}:[/] {problem}", soft_wrap=True)
        return 1
    console.rule("[bold green]Everything held")
    console.print(f"It took {time.monotonic() - began:.0f} s. The servers are still running; `./run down` ends them.")
    airflow = f"http://{site.address('airflow')}"
    console.print(f"Airflow:  {airflow}   (the pages: Tidemark, in the navigation)")
    for page, shows in PAGES.items():
        console.print(f"{shows + ':':26} {airflow}/plugin/tidemark/tidemark/{page}", soft_wrap=True)
    console.print(f"user      {environment.ADMIN}")
    console.print(f"password  {environment.password(site)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
