"""Every error that Tidemark raises on purpose, and the exit code each ends a program with.

A message says what happened, to which offsets, and what to do. Two failures that look alike have two names.
"""

from __future__ import annotations

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
    """Base of all of them. `retriable`: the same call may well succeed later, with nothing changed by anybody."""

    exit_code: ClassVar[int] = EXIT_INTERNAL
    retriable: ClassVar[bool] = False


# 2: wrong use or configuration


class WrongUse(TidemarkError):
    """Raised when a request cannot be carried out as it is written."""

    exit_code = EXIT_WRONG_USE


class InvalidStreamFile(WrongUse):
    """Raised when a stream file does not say what a stream file has to say; names file, line and field."""


class ConnectionMissing(WrongUse):
    """Raised when a stream file names a connection that neither Airflow nor the environment has."""


class TopicUnknown(WrongUse):
    """Raised when a topic that has never been read does not exist. Contrast TopicGone."""


class TransformRefused(WrongUse):
    """Raised when a transform gives rows of messages that it was not given, or a row twice; nothing was written."""


class TooLarge(WrongUse):
    """Raised before writing, when a ledger value would pass its limit."""


# 3: fenced or conflicting


class Conflict(TidemarkError):
    """Raised when somebody else's work stands in the way; nothing was changed."""

    exit_code = EXIT_CONFLICT


class Fenced(Conflict):
    """Raised when a newer attempt has taken the window: whatever this attempt still writes will never count."""


class HeldByAnother(Conflict):
    """Raised when another run works on the window and its heartbeat is young."""


class AlreadyCommitted(Conflict):
    """Raised when the window that was asked for has been committed by another run."""


class StaleLedger(Conflict):
    """Raised when the ledger has moved on since it was read and the request no longer fits it."""


class ClaimOverlap(Conflict):
    """Raised when a lane asks for offsets that an open lane has claimed."""


class LaneClosed(Conflict):
    """Raised when a lane is closed or its name was used before."""


class OwnedByAnother(Conflict):
    """Raised when a table or folder belongs to another stream or another ledger."""


class ClockBehind(Conflict):
    """Raised when this machine's clock is far behind the last generation, or the last generation far ahead of now."""


# 4: data lost or source changed


class SourceChanged(TidemarkError):
    """Raised when Kafka no longer holds what the ledger says it held; nothing was changed."""

    exit_code = EXIT_SOURCE_CHANGED


class TopicGone(SourceChanged):
    """Raised when a topic that has been read no longer exists. Contrast TopicUnknown."""


class TopicRecreated(SourceChanged):
    """Raised when a topic has another id than the one the ledger knows, even if its offsets look valid."""


class OffsetsOutOfRange(SourceChanged):
    """Raised when wanted offsets lie below the log's start: retention or DeleteRecords has removed them."""


class LogTruncated(SourceChanged):
    """Raised when a log ends below what was read from it. Contrast OffsetsOutOfRange."""


class PartitionsChanged(SourceChanged):
    """Raised when partitions that the ledger knows are gone."""


# 5: a server is not reachable, or the outcome is unknown


class Unreachable(TidemarkError):
    """Raised when a server does not answer in time; nothing is known to have been changed."""

    exit_code = EXIT_UNREACHABLE
    retriable = True


class OutcomeUnknown(TidemarkError):
    """Raised when a write was sent and no answer could be had. Running again finds out and goes on."""

    exit_code = EXIT_UNREACHABLE
    retriable = True


# 6: processing or verification failed


class ProcessingFailed(TidemarkError):
    """Raised when the work on the data failed; nothing was committed."""

    exit_code = EXIT_FAILED
    retriable = True


class VerificationFailed(TidemarkError):
    """Raised when what was read is not what was stored plus what was set aside; nothing was committed."""

    exit_code = EXIT_FAILED
    retriable = True


class TooManyInvalid(TidemarkError):
    """Raised when a window holds more invalid or failed messages than the stream allows; nothing was committed."""

    exit_code = EXIT_FAILED


# 7: the ledger is unreadable or contradicts itself


class LedgerUnreadable(TidemarkError):
    """Raised when a stored value does not parse or has a newer format. It is never reset."""

    exit_code = EXIT_LEDGER_UNREADABLE


class LedgerContradiction(TidemarkError):
    """Raised when two stored values cannot both be true; the text shows both. Neither is ever reset."""

    exit_code = EXIT_LEDGER_UNREADABLE


def exit_code_of(error: BaseException) -> int:
    """The exit code for whatever ended a program; an error that nobody foresaw never ends as 1."""
    return error.exit_code if isinstance(error, TidemarkError) else EXIT_INTERNAL
