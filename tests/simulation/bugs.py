"""Bugs to plant in the product, each with what the simulation says of it, and a seed whose program finds it.

`./run simulate --bugs` looks for the seeds anew: they change their meaning with the menu.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from tests.model import bugs as model
from tests.model.planting import planted
from tests.simulation.known import known
from tests.simulation.playing import failure_of
from tests.simulation.steps import drawn

PROTOCOL = "tidemark.commit.protocol"
REGISTER = "tidemark.ledger.register"
SINCE = "tidemark.runs.windows.changes_since_pin"
ERASE, SELECTED = "tidemark.cli.commands.erase", "tidemark.cli.commands.replay"
CONFIRMING = "tidemark.cli.confirmation"


@dataclass(frozen=True)
class Bug:
    """In each of some modules, one text stands instead of another. `found`: by which seed, with which theme; None for none."""

    number: str
    changes: tuple[tuple[str, str, str], ...]
    found: tuple[int, str] | None = None


def _of_the_model(name: str) -> Bug:
    found = model.BUGS[name]
    return Bug("r", ((found.module, found.old, found.new), *([found.more] if found.more is not None else [])))


PLANTED: dict[str, Bug] = {
    "a run's name decides, not its request": Bug(
        "2",
        (
            (ERASE, "if asking.dry_run or not begun or EraseRequest.asks(values):", "if not begun:"),
            (SELECTED, 'if values["dry_run"] or not begun or request.asks(values):', "if not begun:"),
        ),
    ),
    "a dry run of a run that has begun reads": Bug(
        "2",
        (
            (SELECTED, "        if asked.dry_run:\n", "        if asked.dry_run and not begun:\n"),
            # A dry run is no consent, whatever a command makes of it.
            (CONFIRMING, "self.yes = yes and not dry_run", "self.yes = yes"),
        ),
    ),
    "an attempt that committed first writes on during an erasure": Bug(
        "3",
        (
            ("tidemark.commit.fence", "            self._check_not_erased(self._committed)\n", ""),
            (PROTOCOL, "since = erasures_since(ledger, ledger.covers(", "since = [] and (ledger, ledger.covers("),
            (PROTOCOL, "        if window.record.receipt is not None or not (shared", "        if True or not (shared"),
        ),
    ),
    "another isolation level makes a log seem cut": Bug(
        "4", (("tidemark.planning.checking", "min(logs[at].written, known", "min(logs[at].end, known"),)
    ),
    "a rebuilt register has no cuts": Bug(
        "4",
        (("tidemark.ledger.recovery.rebuilding", "starts=incarnation.starts if cut else ()))", "starts=()))"),),
    ),
    "a plan looks at what counts for the offsets themselves": Bug(
        "7",
        (
            (
                "tidemark.runs.requests.plan",
                "for name in request.sinks or (None, *(sink.name for sink in opened.stream.sinks)):",
                "for name in (None,):",
            ),
        ),
    ),
    "a plan takes a dead letter for a stored message": Bug(
        "7",
        (("tidemark.planning.estimating", "(counts & dead).count(at) if whole else 0", "0 if whole else 0"),),
    ),
    "a sweep hides what a restored ledger writes": Bug(
        "9",
        (
            (
                "tidemark.sinks.hbase.table",
                "generation - 1 if for_good else self._newest_until(key, newest, now)",
                "generation - 1",
            ),
        ),
    ),
    "a question that is refused once closes a lane": Bug(
        "14",
        (
            (
                "tidemark.runs.windows.lanes",
                '        raise type(problem)(f"{problem} {_kept(opened, lane)}") from problem\n',
                '        raise type(problem)(f"{problem} {_freed(opened, lane, problem)}") from problem\n',
            ),
        ),
    ),
    "a sign of life from the future stops all others": Bug(
        "14", ((PROTOCOL, "return now - at if at - now <= LEASE_MS else LEASE_MS", "return now - at"),)
    ),
    "a backup has heads of a topic that its register does not know": Bug(
        "14",
        (("tidemark.ledger.recovery.backup", "        if now[1].topics == stored[1].topics:\n", "        if True:\n"),),
    ),
    "one draw a day ahead stops all others": Bug(
        "r",
        ((REGISTER, "            _check_not_ahead(ledger, now)\n", "            pass\n"),),
    ),
    "a log is cut while a key is looked for": Bug(
        "new",
        (
            (
                "tidemark.runs.requests.keys",
                "OffsetsWithKey((offsets & still_read) | letters",
                "OffsetsWithKey(offsets | letters",
            ),
        ),
    ),
    "a key is looked for above a cut that nobody has met": Bug(
        "new",
        (
            (
                "tidemark.runs.live.kafka_now",
                "    return held - RangeSet(\n",
                "    return held if ends is not None else held - RangeSet(\n",
            ),
        ),
    ),
    "a plan is compared before its lanes are entered alone": Bug(
        "7",
        (
            (
                "tidemark.runs.requests.claims",
                "judge=lambda now: plan.check(opened, planned, now))",
                "judge=lambda now: None)",
            ),
        ),
    ),
    "whether a plan is stale depends on what a view knows": Bug(
        "new",
        (
            (
                "tidemark.runs.requests.plan",
                "        if counts in seen:\n",
                "        if counts in seen and all(window.record.window.sinks is None for window in view.windows):\n",
            ),
        ),
    ),
    "a lane is closed before its last window is settled": Bug(
        "new",
        (
            (
                REGISTER,
                "            if head.last is not None and not ledger.is_settled(head.last):\n",
                "            if False:\n",
            ),
            ("tidemark.runs.steering", "        protocol.settle(ledger, opened.sweeper, lane)\n", "        pass\n"),
        ),
    ),
    "a window is pinned before the last one is settled": Bug(
        "new", ((PROTOCOL, "    if ledger.is_settled(record):\n", "    if True:\n"),)
    ),
    "what a transaction holds back is cut from a window": Bug(
        "new",
        (
            (
                "tidemark.runs.windows.changes_since_pin",
                "        elif partition.written < range_.until:\n",
                "        elif partition.end < range_.until:\n",
            ),
        ),
    ),
    "an older end from a new leader is believed": Bug(
        "new", (("tidemark.runs.live.kafka_now", "    for _ in range(_STALE_ANSWERS):\n", "    for _ in range(0):\n"),)
    ),
    "a restored ledger stands where folders of newest rows are gone": Bug(
        "new",
        (
            (
                "tidemark.sinks.latest.history",
                "                if self.forgets and filesystem.get",
                "                if False and filesystem.get",
            ),
        ),
    ),
    "a restored ledger publishes what was replayed": Bug(
        "new",
        (
            (
                "tidemark.sinks.iceberg.table",
                "others = replaced - counting() if before and counting is not None else RangeSet()",
                "others = RangeSet()",
            ),
        ),
    ),
    "a longer list of messages clears nothing that was erased before": Bug(
        "new",
        (
            (
                "tidemark.cli.commands.erase",
                "            erasing.clear_again(opened, chosen.erased_before)\n",
                "            erasing.clear_again(opened, chosen.erased_before if not chosen.offsets else RangeSet())\n",
            ),
        ),
    ),
    "a sweep goes by the clock of its machine": Bug(
        "9",
        (
            (
                "tidemark.sinks.hbase.table",
                "                    now = self.server_time()\n",
                "                    now = __import__('tidemark.ledger.stores.doubt', fromlist=['time']).time.time() * 1000\n",
            ),
        ),
    ),
    "a key is looked for above a cut in earlier incarnations": Bug(
        "new",
        (
            (
                "tidemark.runs.live.kafka_now",
                "        if (at.topic, at.partition) in ends\n",
                "        if at in known.epoch_ends\n",
            ),
        ),
    ),
    "only the first lane of a run is compared with the request": Bug(
        "2",
        ((REGISTER, "        _check_same(ledger, known, wanted)\n", "        pass\n"),),
    ),
    "closed lanes keep their claims": Bug(
        "r",
        (
            (
                REGISTER,
                "        if heads[lane].head.state == LaneState.CLOSED:\n            close_lane(ledger, lane)\n",
                "        if heads[lane].head.state == LaneState.CLOSED:\n",
            ),
        ),
    ),
}
FILES, PARTS = "tidemark.sinks.parquet.files", "tidemark.sinks.parquet.parts"
COMPACTING, COMPACTIONS = "tidemark.sinks.parquet.compacting", "tidemark.sinks.parquet.compactions"
DELTA, PUBLISHING = "tidemark.sinks.delta.table", "tidemark.sinks.delta.publishing"
# Of the sinks of files.
PLANTED |= {
    "an erasure leaves what dead attempts have written to folders": Bug(
        "3",
        (
            (
                "tidemark.sinks.parquet.attempts",
                'files.erase_dead(place["base"], erasing)',
                'files.sweep(place["base"], erasing.record)',
            ),
        ),
    ),
    "no compaction removes the folders of cancelled attempts": Bug(
        "3",
        ((COMPACTING, "        remove_dead(ledger, at, generation)\n", ""),),
    ),
    "a compaction that counts is said to be fenced": Bug(
        "r",
        (
            (
                COMPACTIONS,
                "return token in _decoded(ledger, value.sink, current).tokens",
                "return token == _decoded(ledger, value.sink, current).token",
            ),
        ),
    ),
    "a sweep of folders removes the window's own": Bug(
        "r",
        ((FILES, "int(number) < record.attempt.generation", "int(number) <= record.attempt.generation"),),
    ),
    "a replay leaves the older rows in a table": Bug(
        "r",
        ((PUBLISHING, "                self._leave_out(change, table, others)\n", "                pass\n"),),
    ),
    "a publication removes an attempt's files before the table has them": Bug(
        "r",
        (
            (
                PUBLISHING,
                "    change_files(base, publication.stage)\n",
                "    files.delete(folder)\n    change_files(base, publication.stage)\n",
            ),
        ),
    ),
    "a compaction leaves what was erased in a compacted folder": Bug(
        "r",
        (
            (
                COMPACTING,
                "        stale = holds_erased(part)\n",
                "        stale = not part.compacted and holds_erased(part)\n",
            ),
        ),
    ),
    "a compaction removes folders before others count": Bug(
        "r",
        (
            (
                "tidemark.sinks.parquet.steps",
                "        held = compactions.replace(ledger, held, made[-1])\n",
                "        known = compactions.replaced(held, made[-1])\n"
                "        compacting.remove_replaced(ledger, known, base, _claim(held).generation)\n"
                "        held = compactions.replace(ledger, held, made[-1])\n",
            ),
        ),
    ),
    "a reader of folders does not look for a compaction": Bug(
        "r",
        (
            (
                PARTS,
                "        if _same_folders(known, compactions.find(ledger, sink)):\n            return value\n",
                "        return value\n",
            ),
        ),
    ),
    "folders are looked up after the windows": Bug(
        "r",
        (
            (
                PARTS,
                "        known = compactions.find(ledger, sink)\n        windows, authority = _counting(ledger, sink, alone)\n",
                "        windows, authority = _counting(ledger, sink, alone)\n        known = compactions.find(ledger, sink)\n",
            ),
        ),
    ),
    "a compaction is not fenced by the next one": Bug(
        "r",
        (
            (
                COMPACTIONS,
                "        return _swap(ledger, held.bytes, value)\n    except",
                "        now = find(ledger, value.sink)\n"
                "        return _swap(ledger, now.bytes, structs.replace(now.value, folders=value.folders))\n    except",
            ),
        ),
    ),
    "a compaction that is fenced misses its folders": Bug(
        "new",
        (
            (
                "tidemark.sinks.parquet.steps",
                "    with _unless_fenced(ledger, held):\n        chosen = ",
                "    if held:\n        chosen = ",
            ),
        ),
    ),
    "a table that cannot be reached is an error of the program": Bug(
        "new",
        (
            (
                DELTA,
                "            with folders.naming(base):\n                changes(table)\n",
                "            changes(table)\n",
            ),
        ),
    ),
    "a compaction removes folders of attempts that may commit": Bug(
        "r",
        (
            (
                COMPACTING,
                "        if known and standing.is_dead(attempt.generation, generation):\n",
                "        if known or standing.is_dead(attempt.generation, generation):\n",
            ),
        ),
    ),
}
PLANTED |= {
    "an erasure clears the places of receipts alone": Bug(
        "3", (("tidemark.ledger.erasures", "    noted = register[1].places if register else ()\n", "    noted = ()\n"),)
    ),
    "a restored ledger has the last record in another form": Bug(
        "14",
        (
            (
                "tidemark.ledger.recovery.backup",
                "            there.add(key[1])\n            _put(ledger, key, value)\n",
                "            continue\n",
            ),
        ),
    ),
    "a window that was edited by hand is worked on": Bug(
        "r",
        (
            (
                "tidemark.ledger.ledger",
                "        if window is None or window.selection is None:\n            return\n        offsets",
                "        if window is None or True:\n            return\n        offsets",
            ),
        ),
    ),
    "two reads of one window share offsets": Bug(
        "r",
        (
            (
                "tidemark.planning.splitting",
                "    short = [piece for piece in pieces if len(piece) < _SHORT]\n",
                "    short = list(RangeSet(piece for piece in pieces if len(piece) < _SHORT).hull())\n",
            ),
        ),
    ),
}
PLANTED |= {
    "an attempt that was overtaken leaves what was erased meanwhile": Bug(
        "new",
        (
            (
                PROTOCOL,
                "        if not _holds(ledger, taken):\n",
                "        if False:\n",
            ),
        ),
    ),
    "a cut is accepted by positions that others have left behind": Bug(
        "new",
        (
            (
                "tidemark.runs.live.kafka_now",
                "        if learn and now is not None and now.head != head:\n",
                "        if False:\n",
            ),
        ),
    ),
    "a table whose disk goes away is an error of the program": Bug(
        "new",
        (
            (
                DELTA,
                "        table = prepared(base)\n        version =",
                "        table = opened(base)\n        version =",
            ),
        ),
    ),
    "what was written below a disk that went away is committed": Bug(
        "new",
        (
            (
                "tidemark.sinks.mounts",
                "        if mark is None or self._marks.setdefault(base, mark) != mark:\n",
                "        if False:\n",
            ),
            ("tidemark.sinks.mounts", "            if not folder.startswith(bases) or", "            if True or"),
        ),
    ),
    "what the pages know of a lane ends before its last window": Bug(
        "new",
        (
            (
                "tidemark.views.coverage.window_index",
                "            if stored.head.last is not None and self._seqs.get(lane, 0) < stored.head.seq:\n",
                "            if False:\n",
            ),
        ),
    ),
    "what the pages know has no lane that was closed since": Bug(
        "new",
        (
            (
                "tidemark.views.coverage.window_index",
                "        if register.closed != self._closed_lanes:\n",
                "        if False:\n",
            ),
        ),
    ),
    "a page takes windows of some sinks for those that count": Bug(
        "new",
        (
            (
                "tidemark.views.coverage.window_index",
                "for at in covers.partitions if record.window.counts_for(None) else ():",
                "for at in covers.partitions:",
            ),
        ),
    ),
    "a window after what is kept of the ingest is left out": Bug(
        "new",
        (
            (
                "tidemark.ledger.covered",
                "    for first in range(seq + 1, head.seq, _AT_ONCE):\n",
                "    for first in range(seq + 2, head.seq, _AT_ONCE):\n",
            ),
        ),
    ),
    "a time is looked for from the next second on": Bug(
        "new",
        (
            (
                "tidemark.runs.live.same_logs",
                "opened.log.first_at_or_after(logs, milliseconds,",
                "opened.log.first_at_or_after(logs, milliseconds + 1_000,",
            ),
        ),
    ),
    "a window is settled before its dead letters are copied": Bug(
        "new",
        (
            (
                PROTOCOL,
                "    if isinstance(sweeper, SupportsCopies):\n        sweeper.hand_on(ledger, record)\n"
                "    ledger.mark_settled(record)\n",
                "    ledger.mark_settled(record)\n"
                "    if isinstance(sweeper, SupportsCopies):\n        sweeper.hand_on(ledger, record)\n",
            ),
        ),
    ),
    "what came after an erasure is not named": Bug(
        "new",
        (("tidemark.runs.erasing", ' if late else "")', ' if False else "")'),),
    ),
    "an erasure that is asked for again clears nothing": Bug(
        "new",
        (
            (
                "tidemark.runs.erasing",
                "    places = places_to_clear(opened.ledger) if done else []\n",
                "    places, done = [], []\n",
            ),
        ),
    ),
    "files that are swept while they are counted are an error of the program": Bug(
        "new",
        ((FILES, "        if one.type != fs.FileType.File:\n", "        if False:\n"),),
    ),
}
CHECKING, STARTING = "tidemark.planning.checking", "tidemark.planning.starting"
LETTERS = "tidemark.runs.requests.dead_letters"
# Of several topics, of times at which an ingest begins, and of redrives.
PLANTED |= {
    "a topic that was left is missed at the next run": Bug(
        "new",
        (("tidemark.runs.live.kafka_now", "        left=frozenset(\n", "        left=frozenset() and frozenset(\n"),),
    ),
    "a topic of a pattern that is gone is forgotten": Bug(
        "new",
        (
            (
                "tidemark.runs.live.kafka_now",
                "for topic in opened.log.names() | read if",
                "for topic in opened.log.names() if",
            ),
        ),
    ),
    "an ingest begins a second after its time": Bug(
        "new", (("tidemark.runs.windows.ingest", "milliseconds(start.time))", "milliseconds(start.time) + 1_000)"),)
    ),
    "a log without a message since a time is read from its beginning": Bug(
        "new",
        (
            (
                STARTING,
                "name: end if (offset := at_time.get(name)) is None",
                "name: 0 if (offset := at_time.get(name)) is None",
            ),
        ),
    ),
    "a redrive looks at the windows of the ingest alone": Bug(
        "new",
        ((LETTERS, "        if not record.window.counts_for(None):\n", '        if record.lane != "ingest":\n'),),
    ),
    "a dead letter is redriven once more than it may": Bug(
        "new", ((LETTERS, "if redrives(row) >= most:", "if redrives(row) > most:"),)
    ),
    "an audit judges by the ledger as it was": Bug(
        "6",
        (
            ("tidemark.spark.jobs.audit", "    findings -= without | changed\n", "    pass\n"),
            (
                "tidemark.spark.audit.differences",
                "return RangeSet() if self.view is None else",
                "return RangeSet() if True else",
            ),
        ),
    ),
    "a repair of dead letters writes one sink alone": Bug(
        "new",
        (
            (
                "tidemark.runs.auditing",
                "sinks = differing(opened, report) or ()",
                'sinks = differing(opened, report) or ("hbase",)',
            ),
        ),
    ),
    "an audit compares messages above a cut that nobody has met": Bug(
        "new",
        (
            (
                "tidemark.spark.jobs.audit",
                "held = kafka_now.as_read(opened, view.heads[INGEST], held) if held else held",
                "held = held",
            ),
        ),
    ),
    "rows that count no more stay in a table of newest rows": Bug(
        "new",
        (
            (
                "tidemark.sinks.latest.merging",
                "            kept, lost = kept.filter(pa.array(counting)), kept.filter(pa.array(~counting))\n",
                "            lost = kept.filter(pa.array(counting & ~counting))\n",
            ),
        ),
    ),
    "what an erased row had overwritten does not come back": Bug(
        "new",
        (
            (
                "tidemark.sinks.latest.merging",
                "        if self.history is not None and lost.num_rows:\n",
                "        if False:\n",
            ),
        ),
    ),
    "a reader of newest rows does not add what is not settled": Bug(
        "new",
        (
            (
                "tidemark.sinks.latest.folds",
                "_merge(at, history, windows, stale=stale)",
                "_merge(at, history, (), stale=stale)",
            ),
        ),
    ),
    "a table of newest rows is loaded before the ledger": Bug(
        "new",
        (
            (
                "tidemark.sinks.latest.table",
                "        waiting, version = unpublished(ledger, view.heads.values()), table.opened()\n",
                "        version, view = table.opened(), ledger.view(sink)\n"
                "        waiting = unpublished(ledger, view.heads.values())\n",
            ),
        ),
    ),
    "a bucket of an Iceberg table keeps its older files": Bug(
        "new",
        (
            (
                "tidemark.sinks.iceberg.latest.table",
                '            old = [(one, "") for bucket in done.files',
                '            old = [(one, "") for bucket in ()',
            ),
        ),
    ),
    "a log is cut before the ingest has read of it": Bug(
        "new",
        (
            (
                "tidemark.runs.live.kafka_now",
                "        for window, range_ in _last_ranges(opened):\n",
                "        for window, range_ in ():\n",
            ),
        ),
    ),
    "a topic of unknown id that is gone is an error of the program": Bug(
        "new",
        (("tidemark.ledger.incarnations", "    if change.topic not in topics:\n", "    if False:\n"),),
    ),
}
PLANTED |= {
    "newest rows are published without the history": Bug(
        "new",
        (
            (
                "tidemark.sinks.latest.folds",
                "_merge(at, history, windows, stale=True)",
                "_merge(at, history, windows, stale=False)",
            ),
        ),
    ),
    "a reader of newest rows leaves out what a replay brings back": Bug(
        "new",
        (
            (
                "tidemark.sinks.latest.folds",
                "        stale = bool(at.ledger.hidden) or any(one.owes_sweep for one in windows.values())\n",
                "        stale = bool(at.ledger.hidden)\n",
            ),
        ),
    ),
}
ICEBERG = "tidemark.sinks.iceberg"
# Of tables of Iceberg and their compaction.
PLANTED |= {
    "a snapshot keeps the rows that a replay has replaced": Bug(
        "new",
        (
            (
                f"{ICEBERG}.table",
                "        old = _without(where, table, replaced - others, below, made, may_count)\n",
                "        old = _without(where, table, RangeSet(), below, made, may_count)\n",
            ),
        ),
    ),
    "a compaction keeps snapshots from before an erasure": Bug(
        "new",
        ((f"{ICEBERG}.compacting", " or one.snapshot_id in holding)\n", ")\n"),),
    ),
    "a compaction merges files that others have replaced meanwhile": Bug(
        "new",
        (
            (
                f"{ICEBERG}.compacting",
                "        if named or not all(one.path in there for one in group.files):\n",
                "        if named:\n",
            ),
        ),
    ),
}
LOOKING, BROWSING = "tidemark.runs.live.message_lookup", "tidemark.views.browsing"
# Of what people look up.
PLANTED |= {
    "a message above a cut that nobody has met is shown as the one that was read": Bug(
        "new",
        ((LOOKING, "        if cut is not None and cut < one.until:\n", "        if False:\n"),),
    ),
    "added partitions are noted above a cut that nobody has met": Bug(
        "new",
        (
            (
                "tidemark.runs.live.kafka_now",
                "    cut = {at.topic for at, end in known.epoch_ends.items() if end < read.get(at, 0)}\n",
                "    cut = set()\n",
            ),
        ),
    ),
    "browsing shows what was erased": Bug(
        "18",
        (
            (
                f"{BROWSING}.places",
                "    return InKafka(topic, log, offsets, _erased(opened, topic, known) & offsets)\n",
                "    return InKafka(topic, log, offsets, RangeSet())\n",
            ),
        ),
    ),
    "the page of a message shows what was erased": Bug(
        "18",
        ((LOOKING, "        slot = replace(slot, message=None)\n", "        pass\n"),),
    ),
    "browsing goes on a message too late": Bug(
        "new",
        (
            (
                f"{BROWSING}.messages",
                "            start = reached if rest is one else rest.start\n",
                "            start = min(reached + 1, rest.until) if rest is one else rest.start\n",
            ),
        ),
    ),
    "browsing goes on from the last row that it gave": Bug(
        "new",
        ((f"{BROWSING}.parts", "replace(part, until=last + 1)\n", "replace(part, until=last)\n"),),
    ),
    "browsing from the newest back leaves a window out": Bug(
        "new",
        ((f"{BROWSING}.parts", "one.window < window else None\n", "one.window < window - 1 else None\n"),),
    ),
    "the page of dead letters counts those that count no more": Bug(
        "new",
        (
            (
                "tidemark.views.dead_letters",
                "    own = view.authority.held_by(window.generation, window.covers.only(wanted.may_be_in(window.record)))\n",
                "    own = window.covers.only(wanted.may_be_in(window.record))\n",
            ),
            (
                "tidemark.views.dead_letters",
                "if row is not None and row.mark.generation == window.generation)\n",
                "if row is not None)\n",
            ),
        ),
    ),
}
# Of those that the model of the ledger finds, what this simulation finds too.
_OF_THE_MODEL = (
    "false is believed",
    "a record does not name the one before it",
    "settling shows no offsets",
    "commit times follow the clock",
    "a sweep removes the generation of its own window",
    "no sweep after a replay",
    "generations follow the clock",
    "a lane claims what was erased",
    "a take keeps the generation that it finds",
    "an abandon moves the position",
    "settled before swept",
    "settling a replay shows its offsets to other tools",
    "a selection can be found before all its pieces are there",
    "whoever meets a lane that is being opened does not finish it",
    "an erasure reads what it erases",
    "a lost answer is taken for a success",
    "a retry pins anew",
    "no sweep of a window that was taken twice",
    "a replay shows its offsets to other tools",
    "the newest are read first",
    "the lanes that are open may overlap",
    "a lane that is half closed keeps its claim",
    "a replay into one sink counts in the others too",
)
# A seed that finds each, with its theme; it changes with the menu and with the theme.
_SEEDS: dict[str, tuple[int, str]] = {
    "a run's name decides, not its request": (3, "one name"),
    "a dry run of a run that has begun reads": (10, "half closed"),
    "a rebuilt register has no cuts": (1, "times"),
    "a plan looks at what counts for the offsets themselves": (33, "plans"),
    "a plan takes a dead letter for a stored message": (70, "backups"),
    "a question that is refused once closes a lane": (6, "stale plans"),
    "a backup has heads of a topic that its register does not know": (6, "backups"),
    "one draw a day ahead stops all others": (12, "several topics"),
    "a key is looked for above a cut that nobody has met": (3, "audits"),
    "a plan is compared before its lanes are entered alone": (1, "stale plans"),
    "whether a plan is stale depends on what a view knows": (20, "plans"),
    "a lane is closed before its last window is settled": (29, "given up"),
    "a window is pinned before the last one is settled": (1, "erasures"),
    "an older end from a new leader is believed": (1, "new leaders"),
    "a sweep goes by the clock of its machine": (2, "clocks"),
    "only the first lane of a run is compared with the request": (7, "one name"),
    "closed lanes keep their claims": (29, "half closed"),
    "no compaction removes the folders of cancelled attempts": (52, "folders"),
    "a sweep of folders removes the window's own": (5, "readers of folders"),
    "a replay leaves the older rows in a table": (11, "tables of Delta"),
    "a publication removes an attempt's files before the table has them": (5, "readers of files"),
    "a compaction leaves what was erased in a compacted folder": (2, "folders"),
    "a compaction removes folders before others count": (2, "readers of folders"),
    "a reader of folders does not look for a compaction": (6, "readers of folders"),
    "folders are looked up after the windows": (6, "readers of folders"),
    "a compaction removes folders of attempts that may commit": (4, "readers of files"),
    "a restored ledger has the last record in another form": (6, "older versions"),
    "a window that was edited by hand is worked on": (1, "edited by hand"),
    "what the pages know of a lane ends before its last window": (4, "pages"),
    "what the pages know has no lane that was closed since": (4, "pages"),
    "a page takes windows of some sinks for those that count": (4, "pages"),
    "a window after what is kept of the ingest is left out": (4, "pages"),
    "a time is looked for from the next second on": (1, "times to begin"),
    "a window is settled before its dead letters are copied": (17, "copies"),
    "a topic that was left is missed at the next run": (4, "several topics"),
    "a topic of a pattern that is gone is forgotten": (83, "several topics"),
    "an ingest begins a second after its time": (1, "times to begin"),
    "a log without a message since a time is read from its beginning": (8, "times to begin"),
    "a redrive looks at the windows of the ingest alone": (16, "looks"),
    "an audit judges by the ledger as it was": (3, "audits"),
    "an audit compares messages above a cut that nobody has met": (3, "audits"),
    "rows that count no more stay in a table of newest rows": (2, "newest in lakes"),
    "what an erased row had overwritten does not come back": (2, "compacted tables"),
    "a reader of newest rows does not add what is not settled": (9, "newest in lakes"),
    "a bucket of an Iceberg table keeps its older files": (1, "newest in lakes"),
    "newest rows are published without the history": (2, "newest in lakes"),
    "a reader of newest rows leaves out what a replay brings back": (7, "newest in lakes"),
    "a snapshot keeps the rows that a replay has replaced": (9, "compacted tables"),
    "a compaction keeps snapshots from before an erasure": (10, "readers of files"),
    "a compaction merges files that others have replaced meanwhile": (16, "compacted tables"),
    "a message above a cut that nobody has met is shown as the one that was read": (4, "beside readers"),
    "browsing shows what was erased": (4, "looks"),
    "browsing goes on a message too late": (4, "looks"),
    "browsing goes on from the last row that it gave": (1, "beside readers"),
    "browsing from the newest back leaves a window out": (4, "looks"),
    "false is believed": (31, "without a receipt"),
    "a record does not name the one before it": (1, "backups"),
    "settling shows no offsets": (1, "transactions"),
    "commit times follow the clock": (2, "backups"),
    "a sweep removes the generation of its own window": (1, "expired"),
    "no sweep after a replay": (2, "stale plans"),
    "generations follow the clock": (2, "backups"),
    "a lane claims what was erased": (1, "places away"),
    "a take keeps the generation that it finds": (1, "committed first"),
    "an abandon moves the position": (1, "committed first"),
    "settled before swept": (1, "plans"),
    "settling a replay shows its offsets to other tools": (1, "plans"),
    "a selection can be found before all its pieces are there": (1, "plans"),
    "whoever meets a lane that is being opened does not finish it": (2, "beside readers"),
    "an erasure reads what it erases": (1, "readers"),
    "a lost answer is taken for a success": (4, "redrives"),
    "a retry pins anew": (1, "clocks"),
    "no sweep of a window that was taken twice": (1, "lower generations"),
    "a replay shows its offsets to other tools": (1, "places away"),
    "the newest are read first": (1, "stale plans"),
    "the lanes that are open may overlap": (1, "one name"),
    "a lane that is half closed keeps its claim": (2, "compacted tables"),
    "a replay into one sink counts in the others too": (1, "one name"),
}
PLANTED |= {name: _of_the_model(name) for name in _OF_THE_MODEL}
PLANTED = {name: replace(bug, found=_SEEDS.get(name)) for name, bug in PLANTED.items()}
# What each kept program has found, by the bug that brings it back.
KEPT_FOR: dict[str, str] = {
    "an_attempt_that_committed_first_writes_on": "an attempt that committed first writes on during an erasure",
    "another_isolation_level_makes_a_log_seem_cut": "another isolation level makes a log seem cut",
    "a_sweep_hides_what_a_restored_ledger_writes": "a sweep hides what a restored ledger writes",
    "a_sign_of_life_from_the_future_stops_all_others": "a sign of life from the future stops all others",
    "an_erasure_leaves_what_dead_attempts_have_written": "an erasure leaves what dead attempts have written to folders",
    "a_compaction_that_counts_is_said_to_be_fenced": "a compaction that counts is said to be fenced",
    "a_compaction_that_is_fenced_misses_its_folders": "a compaction that is fenced misses its folders",
    "a_table_that_cannot_be_reached_is_an_error_of_the_program": "a table that cannot be reached is an error of the program",
    "an_erasure_clears_the_places_of_receipts_alone": "an erasure clears the places of receipts alone",
    "two_reads_of_one_window_share_offsets": "two reads of one window share offsets",
    "a_dead_letter_is_redriven_once_more_than_it_may": "a dead letter is redriven once more than it may",
    "a_repair_of_dead_letters_writes_one_sink_alone": "a repair of dead letters writes one sink alone",
    "a_table_of_newest_rows_is_loaded_before_the_ledger": "a table of newest rows is loaded before the ledger",
    "the_page_of_a_message_shows_what_was_erased": "the page of a message shows what was erased",
    "the_page_of_dead_letters_counts_those_that_count_no_more": "the page of dead letters counts those that count no more",
    "a_window_beside_what_a_transaction_holds_back": "what a transaction holds back is cut from a window",
    "a_window_is_read_from_a_new_leader": "an older end from a new leader is believed",
    "a_replay_since_a_time_of_a_new_leader": "an older end from a new leader is believed",
    "an_erasure_by_key_of_a_new_leader": "an older end from a new leader is believed",
    "a_ledger_from_before_a_compaction_of_newest_rows": "a restored ledger stands where folders of newest rows are gone",
    "a_sink_is_written_alone_elsewhere_since_a_plan": "whether a plan is stale depends on what a view knows",
    "partitions_are_added_above_a_cut_that_nobody_has_met": "added partitions are noted above a cut that nobody has met",
    "a_message_above_a_cut_that_nobody_has_met": "a message above a cut that nobody has met is shown as the one that was read",
    "an_attempt_is_killed_right_after_a_late_write": "what came after an erasure is not named",
    "a_compaction_replaced_by_the_next_one": "a compaction is not fenced by the next one",
    "a_key_above_a_cut": "a key is looked for above a cut that nobody has met",
    "a_key_above_a_cut_below_a_cut": "a key is looked for above a cut in earlier incarnations",
    "a_log_is_cut_while_a_key_is_looked_for": "a log is cut while a key is looked for",
    "a_plan_that_became_stale_while_it_was_accepted": "a plan is compared before its lanes are entered alone",
    "a_cut_that_was_seen_from_an_older_head": "a cut is accepted by positions that others have left behind",
    "a_disk_goes_away_under_a_writer": "what was written below a disk that went away is committed",
    "a_log_is_cut_before_the_ingest_has_read_of_it": "a log is cut before the ingest has read of it",
    "a_topic_without_a_window_is_deleted_before_a_rebuild": "a topic of unknown id that is gone is an error of the program",
    "a_rebuilt_ledger_settles_a_window_that_was_replayed": "a restored ledger publishes what was replayed",
    "an_erasure_names_what_was_erased_before_too": "a longer list of messages clears nothing that was erased before",
}
# Those that a seed finds.
BUGS = {name: bug for name, bug in PLANTED.items() if bug.found}


@contextmanager
def planting(bug: Bug) -> Iterator[None]:
    with ExitStack() as stack:
        for change in bug.changes:
            stack.enter_context(planted(*change))
        yield


def first_seed(bug: Bug, seeds: Iterable[int], theme: str | None = None) -> tuple[int, str] | None:
    """The first seed whose program finds a bug, and what the simulation says."""
    with planting(bug):
        for seed in seeds:
            failure = failure_of(drawn(seed, theme=theme))
            if failure is not None and not known(failure):
                return seed, failure.text
    return None
