"""Every error that Tidemark raises on purpose, and the exit code each ends a program with.

A message says what happened, to which offsets, and what to do. Two failures that look alike have two names.

docs/errors.md and docs/exit-codes.md are written from here; their links stand in the docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

EXIT_DONE = 0
EXIT_DIFFERENCES = 1
EXIT_WRONG_USE = 2
EXIT_CONFLICT = 3
EXIT_SOURCE_CHANGED = 4
EXIT_UNREACHABLE = 5
EXIT_FAILED = 6
EXIT_LEDGER_UNREADABLE = 7
EXIT_INTERNAL = 70


class TidemarkError(Exception):
    """Base of all errors. `retriable`: the same call may succeed later without any change."""

    exit_code: ClassVar[int] = EXIT_INTERNAL
    retriable: ClassVar[bool] = False


# 2: wrong use or configuration


class WrongUse(TidemarkError):
    """Raised when a request cannot be carried out as it is written.

    To do: correct what the message names.
    """

    exit_code = EXIT_WRONG_USE


class InvalidStreamFile(WrongUse):
    """Raised when a stream file lacks something, or has a wrong value.

    To do: correct the line that the message names; `tidemark streams check` finds them all.
    """


class ConnectionMissing(WrongUse):
    """Raised when a connection that the stream file names is in neither Airflow nor the environment.

    To do: create it.
    """


class PackageMissing(WrongUse):
    """Raised when a package is not installed that only some streams need, or some of their requests.

    To do: install it.
    """


# Pip's names of packages that only some need, as pyproject.toml has it. Errors name these and never a distribution of
# Tidemark, which is on no index: its import name belongs to another project there.
DELTALAKE = "deltalake>=1.6,<2"
PYICEBERG = "pyiceberg==0.12.0"
PROTOBUF = ("protobuf>=6.31,<8", "grpcio-tools>=1.71,<2")
SQL_PACKAGES = ("SQLAlchemy>=2.0.43,<3", "psycopg[binary]>=3.2,<4", "PyMySQL[rsa]>=1.1,<2")
PYSPARK = ("pyspark==4.2.0", "pyspark-client==4.2.0")


def install(*requirements: str) -> str:
    """The command that installs packages, as errors say it: `pip install 'NAME>=1' ...`."""
    return f"pip install {' '.join(map(repr, requirements))}"


class AnotherServer(WrongUse):
    """Raised when a connection leads to a server of another kind, or one that is set up in another way.

    To do: correct host and port of the connection.
    """


class AuthenticationFailed(WrongUse):
    """Raised when a server refuses this login, asks for another certificate, or shows a certificate that is not trusted.

    To do: correct the connection: [kafka-security.md](kafka-security.md).
    """


class NotAuthorized(WrongUse):
    """Raised when a server knows the user and does not allow the request, a disk takes no writes, or a bucket refuses the key.

    To do: give the user or the key that right, or mount the disk for writing: [kafka-security.md](kafka-security.md#rights).
    """


class NotConfirmed(WrongUse):
    """Raised when a command would change something, was not confirmed, and has no terminal to ask on.

    To do: `--yes` acts without asking, `--dry-run` only shows.
    """


class NotApproved(WrongUse):
    """Raised when a request takes more offsets than `limits.approve_above`, and no second person approved it.

    To do: trigger the DAG, where [another person approves](replay.md#approval); on the command line, `--approved-by`.
    """


class RecordsGone(WrongUse):
    """Raised when the file or table in `records_file` does not exist. A run that has begun continues without it.

    To do: put the file there, or name another one.
    """


class TopicUnknown(WrongUse):
    """Raised when a topic that was never read does not exist, or no topic matches the pattern.

    To do: create it, or correct `source`.
    """


class TransformRefused(WrongUse):
    """Raised when a transform gives rows of messages that it did not get, or a row twice; nothing was written.

    To do: correct the transform: it must keep the coordinate unchanged, and give each row of a message its own
    `_index`.
    """


class TookTooLong(WrongUse):
    """Raised when a request of the pages took longer than allowed, and was given up.

    To do: ask for less, or ask the command line, which has no such limit.
    """


class TooLarge(WrongUse):
    """Raised when a value of the ledger would exceed its limit; refused before any work was done.

    To do: fewer topics or partitions in one stream, fewer separate offsets in one selection, `--again` for a
    compaction; or the ledger in HBase, which takes larger values.
    """


# 3: fenced or conflicting


class Conflict(TidemarkError):
    """Raised when another run, lane or stream conflicts; nothing was changed.

    To do: follow the message; mostly wait, and run again.
    """

    exit_code = EXIT_CONFLICT


class Fenced(Conflict):
    """Raised when a newer attempt has taken the window, or committed it: nothing that this attempt wrote counts.

    To do: nothing; the newer attempt does the work.
    """


class HeldByAnother(Conflict):
    """Raised when another run works on the window, or has died less than 30 seconds ago.

    To do: wait, or use `--take-over` if you are certain that the holder is dead.
    """


class AlreadyCommitted(Conflict):
    """Raised when another run has committed the window.

    To do: nothing.
    """


class StaleLedger(Conflict):
    """Raised when the ledger has changed since the plan was made, or the window was abandoned.

    To do: plan again.
    """


class ClaimOverlap(Conflict):
    """Raised when an open lane, or the ingest, has claimed some of the offsets.

    To do: wait until that lane is closed, or free its claim with `tidemark cancel`; against the ingest, ask for
    offsets below its position.
    """


class OffsetsErased(WrongUse):
    """Raised when a lane is requested for erased offsets, whose results may not come back.

    To do: leave them out. The dry run of a request lists them.
    """


class LaneClosed(Conflict):
    """Raised when the lane is closed, for other offsets or before it was done; a name can be used only once.

    To do: give the run another name.
    """


class AnotherRequest(Conflict):
    """Raised when a request uses the run name of another request; the message shows the difference.

    To do: give the run another name. To continue the run that has begun, give only its name: `--run NAME`.
    """


class LanePaused(Conflict):
    """Raised when a backfill or replay was paused: no further window of it begins.

    To do: `tidemark resume`, then run it again. In Airflow, clear its task.
    """


class OwnedByAnother(Conflict):
    """Raised when a table or folder belongs to another stream or another ledger.

    To do: name another table or folder.
    """


class ClockBehind(Conflict):
    """Raised when this machine's clock is more than ten minutes behind the last generation.

    To do: set the clock that is wrong; if no clock is, `tidemark ledger clock STREAM --accept`.
    """


class ClockAhead(Conflict):
    """Raised when this machine's clock is more than ten minutes ahead of that of the ledger's server: its
    generation would stop all others.

    To do: set the clock that is wrong.
    """


# 4: data lost or source changed


class SourceChanged(TidemarkError):
    """Raised when Kafka no longer holds what the ledger says it held, or changed while a window was
    processed; nothing was changed.

    To do: as for the errors below that have code 4.
    """

    exit_code = EXIT_SOURCE_CHANGED


class TopicGone(SourceChanged):
    """Raised when a topic that was read no longer exists.

    To do: `on_deleted: leave`, or correct `source`.
    """


class TopicRecreated(SourceChanged):
    """Raised when a topic has another id, even if its offsets look valid: it was deleted and created again.

    To do: `on_recreated: accept` reads it as a new topic.
    """


class OffsetsOutOfRange(SourceChanged):
    """Raised when retention or DeleteRecords removed offsets before they were read.

    To do: set `on_out_of_range`, or give the topic more retention. If the window was pinned before, abandon it too.
    """


class LogTruncated(SourceChanged):
    """Raised when a log ends below offsets that were read, or was cut there and has grown again.

    To do: find out why; `on_truncated: accept` continues from the cut.
    """


class PartitionsChanged(SourceChanged):
    """Raised when partitions that the ledger knows are gone.

    To do: as `TopicRecreated`.
    """


# 5: a server is not reachable, or the outcome is unknown


class Unreachable(TidemarkError):
    """Raised when a server did not answer in time; nothing is known to have been changed.

    To do: bring the server back, and run again.
    """

    exit_code = EXIT_UNREACHABLE
    retriable = True


class EngineEnded(TidemarkError):
    """Raised when the [warm engine](engines.md#a-warm-engine) of a run has ended, or did not start.

    To do: run again, as Airflow does. If no engine starts, its log says why.
    """

    exit_code = EXIT_UNREACHABLE
    retriable = True


class OutcomeUnknown(TidemarkError):
    """Raised when a write was sent, and no answer came.

    To do: run again: the next run finds out whether the write was applied, and goes on.
    """

    exit_code = EXIT_UNREACHABLE
    retriable = True


# 6: processing or verification failed


class ProcessingFailed(TidemarkError):
    """Raised when the work on the data failed. Or a row does not fit into its sink, such as a key that is too long
    for `hbase_latest` or `hbase_aggregates`.

    To do: the error says why. Run again, or make such messages dead letters with a check.
    """

    exit_code = EXIT_FAILED
    retriable = True


class DiskFull(ProcessingFailed):
    """Raised when a disk has no room for results, for a ledger in a file, or for Spark's scratch files.

    To do: make room on the disk that the message names, and run again.
    """

    @classmethod
    def of(cls, place: str) -> DiskFull:
        """The error for the disk of a folder, a file or a database."""
        return cls(f"The disk of {place} is full: {NO_ROOM}. Make room there, and run it again")


# In the words of the system, which every library hands on.
NO_ROOM = "No space left on device"


class VerificationFailed(TidemarkError):
    """Raised when the messages read are not those that were stored, skipped or made dead letters; or rows were
    computed twice and came out differently; or a message was read twice, or outside the window.

    To do: run again. If the error stays, a sink loses or doubles messages, or Tidemark reads wrongly: report it. In
    a compaction, nothing was replaced.
    """

    exit_code = EXIT_FAILED
    retriable = True


class RowsRecomputed(TidemarkError):
    """Raised when Spark lost rows that it kept, with an executor for example, and computed them again. A
    function, or SQL, may then have returned something else.

    To do: run again, as Airflow does; see [lost executors](engines.md#when-an-executor-is-lost).
    """

    exit_code = EXIT_FAILED
    retriable = True


class TooManyInvalid(TidemarkError):
    """Raised when more messages of a window are invalid or failed than `limits.max_invalid` allows.

    To do: [dead-letters.md](dead-letters.md#when-too-many-messages-are-invalid).
    """

    exit_code = EXIT_FAILED


# 7: the ledger is unreadable or contradicts itself


class LedgerUnreadable(TidemarkError):
    """Raised when a stored value does not parse, or a newer version wrote it.

    To do: use that version, or restore the ledger: `tidemark ledger restore`. Tidemark never resets it.
    """

    exit_code = EXIT_LEDGER_UNREADABLE


class LedgerContradiction(TidemarkError):
    """Raised when two stored values cannot both be true; the message shows both. Or a table holds what this stream
    has written with another ledger, which was lost. Or a folder of results that counts is gone.

    To do: find out what wrote there besides Tidemark; restore the ledger: `tidemark ledger restore`.
    """

    exit_code = EXIT_LEDGER_UNREADABLE


@dataclass(frozen=True)
class ExitCode:
    """The meaning of an exit code, and whether Airflow retries the job: always, never, or always `but` after some errors."""

    meaning: str
    to_do: str = ""
    retried: bool = False
    but: tuple[type[TidemarkError], ...] = ()


EXIT_CODES: Mapping[int, ExitCode] = {
    EXIT_DONE: ExitCode("done"),
    EXIT_DIFFERENCES: ExitCode(
        "an audit found differences, or `tidemark complete` something missing",
        "check the coordinates and replay the findings; blocks that Kafka has deleted "
        "[cannot be replayed](audit.md#what-kafka-has-deleted). `complete` lists what is missing [with its "
        "reason](complete.md#what-is-missing)",
    ),
    EXIT_WRONG_USE: ExitCode("wrong use or configuration, or a person answered no", "correct what the message names"),
    # The holder of a window may be dead: its lease has run out by the next try.
    EXIT_CONFLICT: ExitCode(
        "fenced, or in conflict with another run",
        "usually nothing: another run holds the window, or has committed it",
        retried=True,
        # Nobody but a person ends a pause or gives another name, and a lane that was cancelled is never opened again.
        but=(LaneClosed, LanePaused, AnotherRequest),
    ),
    EXIT_SOURCE_CHANGED: ExitCode("data lost, or the source changed", "see [code 4](#code-4)"),
    EXIT_UNREACHABLE: ExitCode(
        "a server is not reachable, or the outcome is unknown",
        "bring the server back; the next run finds out what happened and continues",
        retried=True,
    ),
    # The same code finds the same invalid messages in the pinned window.
    EXIT_FAILED: ExitCode(
        "processing or verification failed",
        "read the log, which says what was committed. See "
        "[too many invalid messages](dead-letters.md#when-too-many-messages-are-invalid)",
        retried=True,
        but=(TooManyInvalid,),
    ),
    EXIT_LEDGER_UNREADABLE: ExitCode("the ledger is unreadable or contradicts itself", "see [code 7](#code-7)"),
    EXIT_INTERNAL: ExitCode(
        "an internal error, or the job was killed", "please report an internal error", retried=True
    ),
}
