"""The settings of a stream file for fetching messages from Kafka."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from tidemark.settings.parts import Part

_Bytes = Annotated[int, Field(ge=1, le=2_147_483_647)]
_Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]


class FetchSettings(Part):
    """The consumer's settings that may be given, by Kafka's own names; all others are refused. None: Kafka's default.

    Which offsets are read, and what counts as read, is not for a setting to change.

    For as long as `fetch.max.wait.ms` Kafka's broker waits when there is nothing to fetch, by Kafka's default half a second.
    All of a window is there; but Spark asks for the log's ends behind each portion of `max.poll.records`, and is answered
    when the fetch that the consumer has already sent for what comes next has been. Kafka's default is 500 messages.
    """

    model_config = ConfigDict(validate_by_alias=True, validate_by_name=False)

    fetch_min_bytes: Annotated[
        _Bytes | None, Field(alias="fetch.min.bytes", description="The minimum size of a response.")
    ] = None
    fetch_max_bytes: Annotated[
        _Bytes | None, Field(alias="fetch.max.bytes", description="The maximum size of a response.")
    ] = None
    fetch_max_wait_ms: Annotated[
        _Milliseconds,
        Field(
            alias="fetch.max.wait.ms",
            description="How long a broker waits if there is nothing to fetch. It is short, because a window's messages are "
            "already in Kafka.",
        ),
    ] = 20
    max_partition_fetch_bytes: Annotated[
        _Bytes | None,
        Field(alias="max.partition.fetch.bytes", description="The maximum size of one partition in a response."),
    ] = None
    max_poll_records: Annotated[
        _Bytes,
        Field(
            alias="max.poll.records",
            description="The most messages that a poll returns. After each poll, Spark asks Kafka for the log's ends.",
        ),
    ] = 4000
    receive_buffer_bytes: Annotated[
        _Bytes | None, Field(alias="receive.buffer.bytes", description="The buffer of the connection.")
    ] = None
    request_timeout_ms: Annotated[
        _Milliseconds | None,
        Field(alias="request.timeout.ms", description="How long the consumer waits for a response."),
    ] = None

    def settings(self) -> dict[str, str]:
        """The consumer's settings, by Kafka's names, without those that keep Kafka's default."""
        return {name: str(value) for name, value in self.model_dump(by_alias=True, exclude_none=True).items()}
