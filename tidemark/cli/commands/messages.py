"""`tidemark messages`: messages or dead letters that fit a filter, as on the page `Browse`, without its bounds."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.browsing import Reader, answers
from tidemark.cli.options import Since, Stream, UntilTime
from tidemark.cli.output import contents, data, error, moment
from tidemark.offsets.counting import number_of
from tidemark.views.browsing import dead_letters as letters
from tidemark.views.browsing.exports import exported
from tidemark.views.browsing.items import Item, SearchResult
from tidemark.views.browsing.messages import MessageQuery
from tidemark.views.browsing.messages import messages as in_kafka
from tidemark.views.browsing.places import SearchScope
from tidemark.views.messages.payloads import shown

# Of a key and a value in a table.
_MAX_SHOWN = 200


def messages(
    stream: Stream,
    where: Annotated[
        str,
        typer.Argument(
            help="TOPIC, TOPIC/PARTITION, or TOPIC/PARTITION@FROM-UNTIL; without it, the stream's only topic, or the window's"
        ),
    ] = "",
    *,
    filter_: Annotated[
        str, typer.Option("--filter", help="""only those that match, such as '$.amount < 0 and key = "c17"'""")
    ] = "",
    window: Annotated[
        str, typer.Option(help="only those of this window, LANE/NUMBER; of dead letters, also a lane")
    ] = "",
    since: Since = "",
    until_time: UntilTime = "",
    tail: Annotated[
        int | None,
        typer.Option(
            min=1, help="the last matches, at most this many, oldest first; dead letters: of the newest windows"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most this many")] = 20,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="the dead letters that count instead of what Kafka holds")
    ] = False,
    form: Annotated[
        Literal["table", "csv", "jsonl"],
        typer.Option("--format", help="a table, or whole payloads as CSV or JSON lines, which --records-file takes"),
    ] = "table",
) -> None:
    """Search the messages that Kafka holds. Erased ones are left out.

    A filter is comparisons joined by `and`. On the left is key, value, header NAME, or a path into JSON, Avro or Protobuf
    such as $.items[0].price; for dead letters also reason, error, detail, outcome, attempts or redrives. After it comes =,
    !=, <, <=, > or >= and a number, a text in quotes, true or false; or `contains` and a text; or `is null`, `is not null`.

    Example: tidemark messages orders orders/3 --filter '$.amount < 0' --limit 5
    """
    opened = stream_lookup.opened(stream)
    asked = MessageQuery(SearchScope(where, window, since, until_time), filter_, tail or limit, tail is not None)
    reader: Reader = letters.dead_letters if dead_letters else in_kafka
    parts = list(answers(reader, opened, asked))
    items = [item for one in parts for item in one.items]
    if tail is not None:
        items.reverse()
    fields = (*letters.FIELDS, "window") if dead_letters else ()
    if form != "table":
        contents(exported(items, form, fields))
    else:
        more = ("reason", "window") if dead_letters else ()
        rows = [[str(one.at), moment(one.timestamp), *map(_short, _cells(one, more))] for one in items]
        data(items, as_json=False, rows=rows, columns=("message", "time", "key", "value", *more))
    _say(parts, len(items))


def _cells(item: Item, fields: tuple[str, ...]) -> list[bytes | None]:
    return [item.key, item.value if item.record is None else item.record, *(item.fields.get(name) for name in fields)]


def _short(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = shown(value, _MAX_SHOWN)
    return text.text + (f" ({number_of(text.more, 'byte')} more)" if text.more else "")


def _say(parts: list[SearchResult], count: int) -> None:
    looked, erased, not_read = (sum(getattr(one, name) for one in parts) for name in ("looked", "erased", "not_read"))
    said = [f"{count} of {number_of(looked, 'message')} that were looked at"]
    if erased:
        said.append(f"{erased} erased ones left out")
    if not_read:
        said.append(f"{not_read} could not be read as JSON within limits, so nobody knows whether they fit")
    if parts and parts[-1].go_on is not None:
        said.append("there may be more: --limit says how many")
    error("; ".join(said))
