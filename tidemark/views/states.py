"""The state of a stream: the worst that is true of it, with everything else that is wrong, and what to do. Pure.

This is the only rule: pages, the API, `tidemark status`, the log of a task and the metric `state` have their words from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark.offsets.counting import number_of
from tidemark.offsets.times import in_words
from tidemark.views.scheduling import Scheduling, scheduling_problems
from tidemark.views.state_words import StateReason, StreamState, worst_first
from tidemark.views.status import PartitionState
from tidemark.views.stream_line import StreamLine

# From this share of dead letters on a stream is not OK, in percent. A window with more than `limits.max_invalid` is refused.
DEAD_LETTERS_PERCENT = 10
# Of sentences about one partition each.
_MAX = 5
_REMEDIES = {
    PartitionState.WARNING: "Let the ingest run more often, or read more at once: schedule, limits, engine",
    PartitionState.STALLED: "See the log of the last run, and the open transactions of this partition",
    PartitionState.REWOUND: "source.on_recreated and source.on_truncated say whether the ingest goes on",
    PartitionState.STOPPED: "See the last run of the ingest, and run it: the error says what holds it up",
}


def reasons_of(line: StreamLine, scheduling: Scheduling | None = None) -> list[StateReason]:
    """Everything that is wrong with a stream, the worst first; nothing for one that is OK.

    `scheduling`: what Airflow knows of its ingest. Commands and tasks do not know.
    """
    found = [*_reached(line), *_kafka(line), *_ledger(line)]
    if scheduling is not None:
        found += scheduling_problems(scheduling, _waits(line))
    return worst_first(found)


def unseen(problem: str, scheduling: Scheduling | None = None) -> list[StateReason]:
    """As `reasons_of`, for a stream of which nobody knows more than this problem."""
    found = [_unreachable(problem)]
    return worst_first([*found, *scheduling_problems(scheduling)] if scheduling is not None else found)


def invalid(problem: str) -> list[StateReason]:
    """As `reasons_of`, for a stream file that cannot be used."""
    return [
        StateReason(
            StreamState.INVALID, "stream file", problem, "Correct the file; `tidemark streams check` reads it again"
        )
    ]


def state_of(reasons: list[StateReason]) -> StreamState:
    """The state of a stream with these reasons, the worst first."""
    return reasons[0].state if reasons else StreamState.OK


def _some(sentences: Sequence[str]) -> str:
    """Of a stream of many partitions, the first ones."""
    more = len(sentences) - _MAX
    return "; ".join(sentences[:_MAX]) + (f"; and {number_of(more, 'more partition')}" if more > 0 else "")


def _unreachable(problem: str) -> StateReason:
    return StateReason(StreamState.UNREACHABLE, problem.removeprefix("Unreachable: "), problem, "")


def _reached(line: StreamLine) -> Iterator[StateReason]:
    if line.kafka_problem is not None:
        yield _unreachable(line.kafka_problem)
    if line.retired is not None:
        yield StateReason(StreamState.RETIRED, "ledger is retired", line.retired, "")
    if line.missing_topics:
        topics = ", ".join(line.missing_topics)
        yield StateReason(
            StreamState.NO_TOPIC,
            f"{topics} is missing",
            f"{'topic' if len(line.missing_topics) == 1 else 'topics'} {topics} does not exist",
            "Create it, or correct `source` in the stream file",
        )


def _kafka(line: StreamLine) -> Iterator[StateReason]:
    if line.lost_unread:
        yield StateReason(
            StreamState.LOST,
            "unread offsets are deleted",
            _some(line.lost_unread),
            "They cannot be read any more; source.on_out_of_range says whether the ingest goes on",
        )
    if line.expiring:
        yield StateReason(
            StreamState.EXPIRING,
            "soon" if line.retention_ms is None else f"unread offsets, in {in_words(line.retention_ms)}",
            _some(line.expiring),
            "Run the ingest, or raise Kafka's retention",
        )
    if line.lost is not None:
        yield StateReason(
            StreamState.LOST,
            f"{number_of(line.lost.offsets, 'offset')} lost",
            f"{number_of(line.lost.offsets, 'offset')} were passed over by {line.lost.policies}, and Kafka has them no more: "
            f"{line.lost.ranges}",
            "They cannot be read any more; run the ingest more often, or raise Kafka's retention",
            line.lost.offsets,
        )
    if line.windows == 0 and line.kafka_problem is None:
        waits = _waits(line)
        yield StateReason(
            StreamState.NEW,
            f"no window yet{waits and ', '}{waits}",
            f"no window of the ingest has been committed yet{waits and ': '}{waits}",
            f"`tidemark run {line.stream}`, or the DAG of the ingest, reads them" if waits else "",
            line.in_topics or 0,
        )
    if line.status is not None and line.status.word != PartitionState.OK:
        word = PartitionState(line.status.word)
        yield StateReason(StreamState(word.value), line.status.rule, line.status.sentence, _REMEDIES[word])


def _waits(line: StreamLine) -> str:
    """What nobody has read yet; of a stream without any position, what Kafka holds."""
    if line.lag is not None:
        return "" if line.lag == 0 else line.lag_sentence or ""
    return f"{number_of(line.in_topics, 'offset')} in Kafka" if line.in_topics else ""


def _ledger(line: StreamLine) -> Iterator[StateReason]:
    if line.holes:
        more = f" and {number_of(line.more_holes, 'more range')}" if line.more_holes else ""
        yield StateReason(
            StreamState.HOLES,
            f"not read: {line.holes[0]}{' and more' if len(line.holes) > 1 or line.more_holes else ''}",
            f"no window has read {', '.join(line.holes)}{more}",
            f"To read them: `tidemark backfill {line.stream} --holes`, or a backfill of the holes on the page Plan",
        )
    if line.skipped is not None:
        number = number_of(line.skipped.offsets, "offset", "was", "were")
        yield StateReason(
            StreamState.SKIPPED,
            f"{number_of(line.skipped.offsets, 'offset')} skipped",
            f"{number} skipped by {line.skipped.policies}, and no window has read them: {line.skipped.ranges}",
            f"While Kafka has them, a backfill of these offsets reads them: `tidemark backfill {line.stream} --ranges ...`",
            line.skipped.offsets,
        )
    if line.audit is not None and not line.audit.clean:
        yield StateReason(
            StreamState.FINDINGS,
            f"{line.audit.level} audit",
            f"the last audit ({line.audit.level}) has findings: {line.audit.sentence}",
            "The page Audits names them, and repairs what a replay can",
        )
    if line.late is not None:
        yield StateReason(
            StreamState.LATE, "latency alarm", line.late, "See what takes long in the last windows of the ingest"
        )
    if line.read and 100 * line.dead_letters >= DEAD_LETTERS_PERCENT * line.read:
        percent, windows = 100 * line.dead_letters // line.read, number_of(line.windows, "window")
        yield StateReason(
            StreamState.DEAD_LETTERS,
            f"{percent} % of the last {windows}",
            f"{line.dead_letters} of the {number_of(line.read, 'message')} that the last {windows} of the ingest have read "
            f"became dead letters, {percent} %",
            f"`tidemark dead-letters {line.stream}`, or the page Dead letters, says why; a replay reads them again",
            percent,
        )
