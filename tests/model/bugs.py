"""Bugs to plant, each with what the model says of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.sequences import ON_ERASING, ON_THE_LEDGER, ON_THE_SOURCE, Focus
from tests.support.memory import MemoryStore, TransactionalStore

PROTOCOL = "tidemark.commit.protocol"
DOUBT = "tidemark.ledger.stores.doubt"
REGISTER = "tidemark.ledger.register"
BOOK = "tidemark.ledger.ledger"
PLANNER = "tidemark.planning.planner"
SELECTIONS = "tidemark.ledger.selections"


@dataclass(frozen=True)
class Bug:
    """`old` stands in the product's module; the bug would have `new` instead; the model says `said`."""

    module: str
    old: str
    new: str
    said: str
    # The same bug in another module.
    more: tuple[str, str, str] | None = None
    store: type[MemoryStore] = MemoryStore
    focus: Focus = ON_THE_LEDGER
    # The seed of a sequence that has found it, which is played first.
    likely: int = 0


BUGS = {
    "a lane claims what was erased": Bug(
        REGISTER,
        "    if gone := wanted & erased(view.windows):\n",
        "    if gone := RangeSet():\n",
        "claims what was erased",
        more=(
            "tidemark.runs.requests.plan",
            "    gone = erased(view.windows)\n",
            "    gone = RangeSet()\n",
        ),
        focus=ON_ERASING,
        likely=70,
    ),
    "an erasure reads what it erases": Bug(
        PROTOCOL,
        "ledger.reads(window), taken.attempt, fence)\n",
        "ledger.covers(window), taken.attempt, fence)\n",
        "which does not count",
        focus=ON_ERASING,
    ),
    "a commit expects what is stored now, not what it took": Bug(
        PROTOCOL,
        "    expected = taken.stored.bytes\n",
        "    expected = ledger.head(head.lane).bytes\n",
        "was committed and not pending|an attempt committed that did not hold|overslept|goes on for ever",
    ),
    "a lost answer is taken for a success": Bug(
        DOUBT,
        "            doubtful, reason = True, str(problem)\n",
        "            return\n",
        "an attempt was told that it was committed",
        likely=26,
    ),
    "false is believed": Bug(
        DOUBT,
        "    if current is not None and is_mine(current):\n        return True\n",
        "",
        "an attempt was told that it was not committed",
        likely=14,
    ),
    "a take keeps the generation that it finds": Bug(
        PROTOCOL,
        "        generation, token = draw_generation(ledger)\n",
        "        generation, token = draw_generation(ledger)\n"
        "        generation = pending.attempt.generation if pending.attempt else generation\n"
        "        pending = structs.replace(pending, attempt=None)\n",
        "two attempts were given the same generation",
    ),
    "a record does not name the one before it": Bug(
        PROTOCOL,
        "previous=_digest_of_last(ledger, head))",
        "previous=None)",
        "does not name the record before it",
    ),
    "a retry pins anew": Bug(
        PROTOCOL,
        "        if head.pending is not None:\n            ledger.check_pending(head)\n            return head.pending\n"
        "        window = plan(head)",
        "        window = plan(structs.replace(head, pending=None))",
        "has pinned another window",
    ),
    "an abandon moves the position": Bug(
        PROTOCOL,
        "given_up = structs.replace(head, pending=None, abandoned=abandoned)",
        "given_up = structs.replace(head, pending=None, abandoned=abandoned, positions=_moved(head, head.pending.window))",
        "positions has changed without a commit|its positions are not those that its last window left",
    ),
    "a zombie that wakes after two commits is told committed": Bug(
        PROTOCOL,
        "        return recorded is not None and recorded[1].attempt.token == taken.attempt.token\n\n    try:",
        "        return recorded is not None\n\n    try:",
        "an attempt was told that it was committed",
    ),
    "a commit whose answer was lost is not found in the history": Bug(
        PROTOCOL,
        "        return recorded is not None and recorded[1].attempt.token == taken.attempt.token\n\n    try:",
        "        return False\n\n    try:",
        "an attempt was told that it was not committed",
        likely=61,
    ),
    "a commit whose answer was lost takes any last window for its own": Bug(
        PROTOCOL,
        "            return last.attempt.token == taken.attempt.token\n",
        "            return True\n",
        "an attempt was told that it was committed",
        likely=115,
    ),
    "a sweep removes the generation of its own window": Bug(
        PROTOCOL,
        "        sweeper.sweep(record, ledger.covers(record.window), still_there(ledger, record.places))\n",
        "        attempt = structs.replace(record.attempt, generation=record.attempt.generation + 1)\n"
        "        record = structs.replace(record, attempt=attempt)\n"
        "        sweeper.sweep(record, ledger.covers(record.window), still_there(ledger, record.places))\n",
        "was swept",
    ),
    "no sweep after two abandons": Bug(
        PROTOCOL,
        "    offsets = {position.at: position.offset for position in head.abandoned.until} if head.abandoned else {}\n"
        "    for range_ in head.pending",
        "    offsets = {}\n    for range_ in head.pending",
        "a row of an older attempt is left",
        likely=296,
    ),
    "no sweep of a window that was taken twice": Bug(
        PROTOCOL,
        "pending.takes > 1",
        "pending.takes > 2",
        "a row of an older attempt is left",
    ),
    "no sweep after a replay": Bug(
        PROTOCOL,
        "    if head.kind != LaneKind.INGEST or pending.takes > 1",
        "    if pending.takes > 1",
        "a row of an older attempt is left",
    ),
    "settled before swept": Bug(
        PROTOCOL,
        "    if record.owes_sweep:\n"
        "        sweeper.sweep(record, ledger.covers(record.window), still_there(ledger, record.places))\n"
        "        on_step(Step.SWEPT)\n"
        "    if isinstance(sweeper, SupportsCopies):\n"
        "        sweeper.hand_on(ledger, record)\n"
        "    ledger.mark_settled(record)\n",
        "    ledger.mark_settled(record)\n"
        "    if record.owes_sweep:\n"
        "        sweeper.sweep(record, ledger.covers(record.window), still_there(ledger, record.places))\n"
        "        on_step(Step.SWEPT)\n",
        "a row of an older attempt is left",
    ),
    "a replay shows its offsets to other tools": Bug(
        PROTOCOL,
        "exported(record, head.positions) if record.kind == LaneKind.INGEST else None",
        "exported(record, head.positions)",
        "has shown its offsets",
        store=TransactionalStore,
    ),
    "settling a replay shows its offsets to other tools": Bug(
        PROTOCOL,
        "    if record.kind == LaneKind.INGEST:\n        ledger.publish",
        "    if True:\n        ledger.publish",
        "offsets were shown to other tools",
    ),
    "settling shows no offsets": Bug(
        PROTOCOL,
        "    if record.kind == LaneKind.INGEST:\n        ledger.publish",
        "    if False:\n        ledger.publish",
        "other tools see",
    ),
    "the newest are read first": Bug(
        PLANNER,
        "for range_ in left.only([at]).first(count)",
        "for range_ in left.only([at]) - left.only([at]).first(left.count(at) - count)",
        "passes over selected offsets|leaves out .*, which the lane has selected and not read",
    ),
    "commit times follow the clock": Bug(
        PROTOCOL,
        "max(now, last.committed_at + 1)",
        "now",
        "commit times do not rise",
    ),
    "generations follow the clock": Bug(
        REGISTER,
        "drawn = max(now, register.generation + 1)",
        "drawn = now",
        "two attempts were given the same generation",
    ),
    "a selection can be found before all its pieces are there": Bug(
        SELECTIONS,
        "        for piece, part in zip(selection.pieces, parts, strict=False):\n",
        "        self._put(ref.digest, value)\n        for piece, part in zip(selection.pieces, parts, strict=False):\n",
        "can be found, and has no",
    ),
    "the lanes that are open may overlap": Bug(
        REGISTER,
        "        if shared:\n            raise ClaimOverlap(",
        "        if False:\n            raise ClaimOverlap(",
        "claim the same offsets",
    ),
    "a replay may take what the ingest will read": Bug(
        REGISTER,
        "    wanted = ledger.selection(selection)\n    live = _at_or_above(wanted, ingest.head)\n    if live:",
        "    wanted = ledger.selection(selection)\n    live = _at_or_above(wanted, ingest.head)\n    if False:",
        "claims what the ingest reads",
    ),
    "a backfill may take what was read": Bug(
        REGISTER,
        "    if kind == LaneKind.BACKFILL and (known := wanted & covered):",
        "    if False and (known := wanted & covered):",
        "offsets that are not of this kind",
    ),
    "whoever meets a lane that is being opened does not finish it": Bug(
        REGISTER,
        "        if lane not in heads or entry.state == LaneState.OPENING:\n"
        "            heads[lane] = _opened(ledger, lane, entry)\n",
        '        if lane not in heads:\n            raise LedgerContradiction(f"the head of {lane} is missing")\n',
        "the head of .* is missing",
    ),
    "a lane that is half closed keeps its claim": Bug(
        REGISTER,
        "        if heads[lane].head.state == LaneState.CLOSED:\n            close_lane(ledger, lane)\n",
        "        if heads[lane].head.state == LaneState.CLOSED:\n",
        "keeps its claim|claimed by the open lane",
        more=(
            "tidemark.runs.windows.lanes",
            "    if lane != INGEST:\n        close_lane(opened.ledger, lane)\n",
            "    if lane != INGEST:\n"
            "        found = opened.ledger.head(lane)\n"
            "        if found is not None and found.head.state != LaneState.CLOSED:\n"
            "            close_lane(opened.ledger, lane)\n",
        ),
        likely=327,
    ),
    "a reader does not look again": Bug(
        BOOK,
        "        if _closed(register) != view.closed:\n            return True\n",
        "        return False\n",
        "gives nothing at",
        likely=36,
    ),
    "a replay into one sink counts in the others too": Bug(
        BOOK,
        " for window in windows if window.record.window.counts_for(sink))",
        " for window in windows)",
        "gives nothing at|which does not count|another generation counts at|a compaction has lost",
    ),
    "a pinned window forgets its sinks": Bug(
        PLANNER,
        "        sinks=request.sinks,\n",
        "",
        "has other sinks than its lane",
    ),
    "a second recreation is never accepted": Bug(
        "tidemark.planning.checking",
        "max(newest.get(topic, FIRST_INCARNATION), known.newest.get(topic, FIRST_INCARNATION))",
        "newest.get(topic, FIRST_INCARNATION)",
        "the ingest is stuck",
        focus=ON_THE_SOURCE,
        likely=252,
    ),
    "a second cut is never accepted": Bug(
        "tidemark.planning.checking",
        "{**known.starts, **positions}",
        "positions",
        "the ingest is stuck",
        focus=ON_THE_SOURCE,
        likely=629,
    ),
}
