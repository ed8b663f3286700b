"""`./run demo`: the main job end to end. Checks each claim, and ends with 1 if one does not hold."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import time

from rich.console import Console

from demo import on_one_machine, on_servers
from demo.airflow import StoodStill
from demo.stage import Chapter, ClaimFailed, Stage
from demo.story import parts
from services import control, environment, jars, processes
from services.__main__ import engine_starting
from services.errors import ServiceError
from services.site import Site

console = Console(highlight=False)

# The jars of what runs without `--all`. Those for buckets belong to Spark's settings, and so to one engine for all.
JARS = ("kafka", "spark", "hadoop-aws")
# What tells the Airflow of one story from that of another: the streams that it shows, and where their ledgers are.
_OF_A_STORY = ("TIDEMARK_STREAMS", "AIRFLOW_CONN_SQL_DEFAULT", "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION")

# Where to look at what the chapters have done.
PAGES = {
    "": "all streams",
    f"streams/{on_one_machine.STREAM}": "which offsets are where",
    f"streams/{on_one_machine.STREAM}/messages": "what became of a message",
    f"streams/{on_one_machine.STREAM}/audits": "the audit",
}
PAGES_OF_ALL = {
    "": "all streams",
    "streams/cdn_logs": "which offsets are where",
    "streams/cdn_logs/messages": "what became of a message",
    "streams/cdn_logs/audits": "the audits, and the repair",
    f"streams/{on_servers.FROM_NOW}/dead-letters": "dead letters to redrive",
    f"streams/{on_servers.FROM_NOW}": "the backfill",
}
MORE = "./run demo --all"
NEXT = {
    f"./run tidemark status {on_one_machine.STREAM}": "position, end and lag of each partition",
    f"./run tidemark show {on_one_machine.STREAM} {on_one_machine.TOPIC}/0@17": "what became of one message",
    MORE: "the same, and then HBase, ZooKeeper and a Spark cluster",
    "./run down": "ends the servers",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run demo", description="The main job end to end, on this machine.")
    parser.add_argument("--all", action="store_true", help="also HBase, ZooKeeper and a Spark cluster")
    everything: bool = parser.parse_args().all
    began = time.monotonic()
    site = Site.from_environment()
    try:
        _tell(site, began, everything=everything)
    except (ServiceError, ClaimFailed, StoodStill) as problem:
        console.print(f"[bold red]{type(problem).__name__}:[/] {problem}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted. `./run down` ends the servers.")
        return 130
    console.rule("[bold green]Everything held")
    console.print(f"It took {time.monotonic() - began:.0f} s. The servers are still running.")
    _say_what_is_next(site, everything=everything)
    return 0


def _tell(site: Site, began: float, *, everything: bool) -> None:
    console.rule("[bold]1. The servers")
    if not everything:
        # More messages, in more sinks, are worth to be compiled for.
        os.environ["JAVA_TOOL_OPTIONS"] = environment.QUICK_JAVA
    control.check_port_base(site)
    jars.fetch(site.jars, *(() if everything else JARS))
    # An ingest by the clock, as soon as Airflow finds the stream, would read what a chapter is going to read.
    os.environ["AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"] = "True"
    if environment.has_begun(site):
        console.print("  there was a demo before this one: its topic, ledger and table go first")
        on_one_machine.forget(site)
    home = environment.begin_on_one_machine(site)
    os.environ["TIDEMARK_STREAMS"] = str(home / "streams")
    if everything:
        del os.environ["TIDEMARK_STREAMS"]
    os.environ.update(environment.everything(site))
    _end_another_airflow(site)
    told = parts(Stage(site, console), everything=everything)
    servers = dict.fromkeys(server for part in told for server in part.servers)
    ready: list[str] = []
    number = 2
    with control.starting(site, servers, report=ready.append) as started:
        with engine_starting(site):
            started.wait("kafka")
        for part in told:
            with console.status(f"waiting for {', '.join(part.servers)}"):
                started.wait(*part.servers)
            while ready:
                console.print(ready.pop(0))
            for chapter in part.chapters:
                _show(number, chapter, time.monotonic() - began)
                number += 1


def _show(number: int, chapter: Chapter, seconds: float) -> None:
    """A chapter with its title, and what it shows, which are its docstring."""
    title, _, shows = inspect.cleandoc(chapter.__doc__ or "").partition("\n\n")
    console.rule(f"[bold]{number}. {title}[/] [dim]after {seconds:.0f} s")
    console.print(f"[italic]{shows}")
    chapter()


def _end_another_airflow(site: Site) -> None:
    """End an Airflow that was started for other streams, as by `./run up`. It is started again with those of this story."""
    for process in processes.running(site, "airflow-api"):
        known = process.environ()
        if any(known.get(name) != os.environ[name] for name in _OF_A_STORY):
            control.down(site, control.AIRFLOW, report=console.print)
            return


def _say_what_is_next(site: Site, *, everything: bool) -> None:
    airflow = f"http://{site.address('airflow')}"
    console.print(f"\nAirflow   {airflow}   (the pages: Tidemark, in the navigation)")
    console.print(f"user      {environment.ADMIN}")
    console.print(f"password  {environment.password(site)}\n")
    for page, shows in (PAGES_OF_ALL if everything else PAGES).items():
        console.print(f"{shows:26}  {airflow}/plugin/tidemark/tidemark/{page}", soft_wrap=True)
    console.print("\nNext:")
    for command, does in NEXT.items():
        if everything and command == MORE:
            continue
        console.print(f"  {command:52}  {does}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
