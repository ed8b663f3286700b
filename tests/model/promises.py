"""What the ledger promises, checked on every single change of it. It knows the promises and not how they are kept.

Stored values are read as plain JSON: the checker uses none of the product's code.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.model.sink import SINK, TABLE, Coordinate, Results
from tests.model.transport import Network

INGEST = "ingest"

Head = dict[str, Any]
# Lane and number of a window.
Name = tuple[str, int]


@dataclass
class Committed:
    """A committed window, and the number of the call at which it was committed."""

    record: dict[str, Any]
    covers: list[Coordinate]
    at: int
    settled: bool = False

    @property
    def generation(self) -> int:
        return self.record["attempt"]["generation"]

    def writes(self, sink: str | None) -> bool:
        alone = self.record["window"]["sinks"]
        return alone is None or sink in alone

    @property
    def writes_later(self) -> bool:
        return self.record["window"]["guarantee"] == "at_most_once"


@dataclass
class KafkaState:
    """What attempts have shown of a coordinate: its message, and its order epoch."""

    message: int | None = None
    epoch: int | None = None


class Promises:
    """Follows the log of what was applied. Each method raises AssertionError that says which promise was broken."""

    def __init__(self, network: Network, results: Results) -> None:
        self._network = network
        self._results = results
        self._read = 0
        self.heads: dict[str, Head] = {}
        self._seen: dict[str, set[bytes]] = defaultdict(set)
        self.history: dict[Name, bytes] = {}
        self._marks: dict[str, int] = {}
        self.register: dict[str, Any] | None = None
        self.claims: dict[str, set[Coordinate]] = {}
        self._selections: dict[str, set[Coordinate]] = {}
        self.windows: dict[Name, Committed] = {}
        self._receipts: set[tuple[str, int, str]] = set()
        # The authority: of each coordinate the highest generation of a committed window that writes a sink. None: of
        # those that write all sinks.
        self.counting: dict[str | None, dict[Coordinate, int]] = {None: {}, TABLE: {}, SINK: {}}
        self._first: dict[Coordinate, Name] = {}
        self._holder: dict[tuple[str | None, Coordinate], Name] = {}
        # For good.
        self.erased: set[Coordinate] = set()
        self._generations: set[int] = set()
        self._losers: set[str] = set()
        self.known: dict[Coordinate, KafkaState] = defaultdict(KafkaState)
        # Of each key: (message, its version) of what was committed.
        self._versions: dict[tuple[str, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        self.keys: dict[int, int] = {}
        self.swept = 0
        self._shown: tuple[int, Any] = (-1, None)
        self.commits_records = False
        # Without positions only the last window says what was read: what an older one read may be cut off unnoticed.
        self.notes_cuts = True
        results.changing, results.removing = self.look, self.removes

    @property
    def authority(self) -> dict[Coordinate, int]:
        return self.counting[None]

    def look(self) -> None:
        """Check all that has been applied since the last look."""
        while self._read < len(self._network.applied):
            at, key, value = self._network.applied[self._read]
            self._read += 1
            check = getattr(self, f"_{key[0]}", None)
            if check is not None:
                check(at, key, value)

    def _decoded(self, value: bytes) -> Any:
        return msgspec.json.decode(value)

    # heads

    def _head(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        lane, head = key[1], self._decoded(value)
        assert value not in self._seen[lane], f"a value of the head of {lane} has come back"
        self._seen[lane].add(value)
        before = self.heads.get(lane)
        self.heads[lane] = head
        if before is None:
            assert (head["seq"], head["pending"], head["last"]) == (0, None, None), f"{lane} begins with a window"
            return
        if self.register is not None and self.register.get("retired"):
            # Each head is written once more, so that nobody who is at work commits.
            return
        assert before["state"] != "closed", f"{lane} was closed, and its head has changed"
        if head["seq"] != before["seq"]:
            self._commits(at, lane, before, head)
            return
        for name in ("positions", "last", "unpositioned", "kind"):
            assert head[name] == before[name], f"{lane}: {name} has changed without a commit"
        assert (head["state"] == "closed") == (head["token"] != before["token"]), f"{lane}: an unknown change"
        if head["state"] == "closed":
            assert head["pending"] is None, f"{lane} was closed with a pending window"
            self._is_settled(lane, before, "closed")
        elif before["pending"] is None:
            self._pins(lane, before, head)
        elif head["pending"] is None:
            times = before["abandoned"]["count"] if before["abandoned"] else 0
            assert head["abandoned"]["count"] == times + 1, f"{lane}: an abandon was not counted"
        else:
            self._takes(lane, before, head)

    def _pins(self, lane: str, before: Head, head: Head) -> None:
        self._is_settled(lane, before, "pinned")
        window, previous = head["pending"]["window"], head["pending"]["previous"]
        assert head["pending"]["attempt"] is None
        assert window["seq"] == before["seq"] + 1, f"{lane} pinned window {window['seq']} after {before['seq']}"
        last = self.history.get((lane, before["seq"]))
        follows = hashlib.sha256(last).hexdigest() if last is not None else None
        assert previous == follows, f"{lane}/{window['seq']} does not name the record before it"
        entry = self.register["lanes"][lane] if self.register else None
        assert entry is None or window["sinks"] == entry["sinks"], (
            f"{lane}/{window['seq']} has other sinks than its lane"
        )
        self._continues(lane, before, window)

    def _continues(self, lane: str, before: Head, window: dict[str, Any]) -> None:
        """Every range begins at the position, or at the end of the gaps before it; nothing selected is passed over."""
        if window["guarantee"] == "none":
            return
        positions = {_at(one): one[3] for one in before["positions"]}
        selected = self._claimed(lane)
        for one in window["ranges"]:
            at = (one["topic"], one["incarnation"], one["partition"])
            if at not in positions:
                continue
            position = positions[at]
            for gap in sorted(window["gaps"], key=lambda gap: gap["from"]):
                if (gap["topic"], gap["incarnation"], gap["partition"]) == at:
                    assert gap["from"] == position, f"{lane}/{window['seq']} has a hole before a gap"
                    position = gap["until"]
            if selected is None:
                assert one["from"] == position, f"{lane}/{window['seq']} begins at {one['from']}, not at {position}"
            else:
                assert position <= one["from"], f"{lane}/{window['seq']} begins below its position"
                passed = {(*at, offset) for offset in range(position, one["from"])} & selected
                assert not passed, f"{lane}/{window['seq']} passes over selected offsets"

    def _takes(self, lane: str, before: Head, head: Head) -> None:
        old, new = before["pending"], head["pending"]
        same = all(old[name] == new[name] for name in ("window", "token", "previous"))
        assert same, f"{lane} has pinned another window instead of the pending one"
        generation = new["attempt"]["generation"]
        assert generation not in self._generations, "two attempts were given the same generation"
        assert generation > (old["attempt"] or {"generation": 0})["generation"], f"{lane}: a generation has fallen"
        assert new["takes"] == old["takes"] + 1, f"{lane}: a take was not counted"
        self._generations.add(generation)

    def _commits(self, at: int, lane: str, before: Head, head: Head) -> None:
        pending, record = before["pending"], head["last"]
        name = (lane, head["seq"])
        assert pending is not None, f"{lane}/{head['seq']} was committed and not pending"
        assert head["seq"] == before["seq"] + 1, f"{lane}: numbers {before['seq']} and {head['seq']} follow each other"
        assert record["window"] == pending["window"], f"{lane}/{head['seq']} is not the window that was pinned"
        assert record["attempt"] == pending["attempt"], "an attempt committed that did not hold the window"
        assert record["previous"] == pending["previous"], f"{lane}/{head['seq']} does not name the record before it"
        assert record["attempt"]["token"] not in self._losers, "an attempt was told that it was not committed"
        assert head["pending"] is None
        assert record["positions"] == head["positions"], f"{lane} has other positions than its last window"
        if before["last"] is not None:
            assert record["committed_at"] > before["last"]["committed_at"], f"{lane}: commit times do not rise"
        window = record["window"]
        moved = {_at(one): one[3] for one in before["positions"]}
        if window["guarantee"] != "none":
            moved |= {(one["topic"], one["incarnation"], one["partition"]): one["until"] for one in window["ranges"]}
        assert {_at(one): one[3] for one in head["positions"]} == moved, f"{lane} has another position than its windows"
        committed = Committed(record, self._covers(lane, window), at)
        self.windows[name] = committed
        self._counts(name, committed)

    def _counts(self, name: Name, committed: Committed) -> None:
        """From now on the results of this window count, and no older ones at its offsets."""
        generation = committed.generation
        # An erasure reads again what it does not erase.
        again = committed.record["kind"] in ("replay", "erase") or committed.record["window"]["guarantee"] == "none"
        if not committed.writes(None):
            assert committed.record["kind"] == "replay", f"{name} has not written all sinks, and is the first there"
        erases = committed.record["window"]["erases"]
        gone = self._selections[erases["selection"]["digest"]] if erases else set()
        for coordinate in committed.covers:
            assert coordinate not in self.erased, f"{name} brings back {coordinate}, which was erased"
            before = max(counts.get(coordinate, 0) for counts in self.counting.values())
            if coordinate in gone:
                assert generation > before
                self.erased.add(coordinate)
                for sink, counts in self.counting.items():
                    counts[coordinate] = generation
                    self._holder[sink, coordinate] = name
                self._first.setdefault(coordinate, name)
                continue
            assert generation > before, f"{name}: {coordinate} was committed at a higher generation before"
            if not again:
                assert before == 0, f"{coordinate} was read by {self._first[coordinate]} and by {name}"
            else:
                assert before > 0 or committed.record["kind"] == "ingest", f"{name} replays what no window has read"
            self._first.setdefault(coordinate, name)
            for sink, counts in self.counting.items():
                if committed.writes(sink):
                    counts[coordinate] = generation
                    self._holder[sink, coordinate] = name
            if committed.writes(TABLE) and self._is_proven(TABLE, coordinate):
                self._is_there(coordinate, generation, f"{name[0]}/{name[1]} is committed")

    def _is_there(self, coordinate: Coordinate, generation: int, why: str) -> None:
        row = self._results.rows.get(coordinate, {}).get(generation)
        assert row is not None, f"{why}, and there is no row of {coordinate}"
        known = self.known[coordinate]
        if not self.notes_cuts:
            return
        assert known.message in (None, row.message), f"{coordinate} names two messages"
        known.message = row.message
        versions = self._versions[coordinate[0], self.keys[row.message]]
        version = versions[row.message] = (known.epoch, coordinate[3])
        for message, other in versions.items():
            right = other < version if message < row.message else other > version or message == row.message
            assert right, (
                f"a table of newest rows keeps the older one: messages {message} and {row.message} are {other}, {version}"
            )

    def _is_settled(self, lane: str, head: Head, what: str) -> None:
        if head["last"] is not None:
            assert self.windows[lane, head["seq"]].settled, f"{lane} was {what} before window {head['seq']} was settled"

    # history

    def _history(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        name = (key[1], int(key[2]))
        assert self.history.setdefault(name, value) == value, f"record {name} has changed"
        if not self.commits_records:
            assert name in self.windows, f"record {name} stands in the history, and was not committed"
            assert self.windows[name].record == self._decoded(value), f"head and history differ on window {name}"
            self._settles(at, name)

    def _settled(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        self._settles(at, (key[1], int(value)))

    def _settles(self, at: int, name: Name) -> None:
        """No row that an older attempt had written before this commit is left, and other tools see the new offsets."""
        assert name in self.windows, f"{name} was settled before it was committed"
        committed = self.windows[name]
        if self.commits_records:
            assert self._decoded(self.history[name]) == committed.record, f"head and history differ on window {name}"
        committed.settled = True
        for coordinate in committed.covers if committed.writes(TABLE) else ():
            for generation, row in self._results.rows.get(coordinate, {}).items():
                older = generation < committed.generation and row.at <= committed.at
                assert not older or self.may_stay(name, generation), (
                    f"{name[0]}/{name[1]} is settled, and a row of an older attempt is left at {coordinate}"
                )
        if name[0] == INGEST and name[1] == self.heads[INGEST]["seq"]:
            assert self._shown[1] == _exported(committed.record), (
                f"{name[0]}/{name[1]} is settled, and other tools see {self._shown[1]}"
            )

    def may_stay(self, name: Name, generation: int) -> bool:
        """Whether a sweep may leave a row of an older attempt: one that is ahead of HBase's clock."""
        return False

    def _offsets(self, at: int, key: tuple[str, ...], offsets: Any) -> None:
        """Other tools see offsets of the ingest only. In HBase the newest commit's stay on top; in ZooKeeper the last ones."""
        lane, committed_at = key[1], int(key[2] or 0)
        if lane:
            assert lane == INGEST, f"{lane} has shown its offsets to other tools"
        else:
            commits = [one.record for one in self.windows.values() if one.record["committed_at"] == committed_at]
            right = [one for one in commits if one["lane"] == INGEST and _exported(one) == offsets]
            assert right, "offsets were shown to other tools that are no commit's of the ingest"
        if committed_at >= self._shown[0]:
            self._shown = (committed_at, offsets)

    # the register

    def _register(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        register, before = self._decoded(value), self.register
        self.register = register
        if before is None:
            before = {"generation": -1, "lanes": {}, "topics": {}}
        assert register["generation"] >= before["generation"], "the register's generation has fallen"
        for topic, known in before["topics"].items():
            ids = {one["incarnation"]: one["topic_id"] for one in register["topics"][topic]}
            assert all(ids.get(one["incarnation"]) == one["topic_id"] for one in known), (
                f"{topic}: an incarnation changed"
            )
        for lane, entry in register["lanes"].items():
            if entry["state"] != "closed" and entry["selection"] and lane not in self.claims:
                self._claims(lane, entry)
        for lane in [
            lane for lane in self.claims if register["lanes"].get(lane, {"state": "closed"})["state"] == "closed"
        ]:
            head = self.heads.get(lane)
            assert head is None or head["state"] == "closed", f"the claim of {lane} was released, and its lane is open"
            del self.claims[lane]

    def _claims(self, lane: str, entry: dict[str, Any]) -> None:
        chosen = self._selections[entry["selection"]["digest"]]
        for other, claimed in self.claims.items():
            assert not chosen & claimed, f"{lane} and {other} claim the same offsets"
        positions = {_at(one): one[3] for one in self.heads[INGEST]["positions"]}
        assert all(one[3] < positions.get(one[:3], 0) for one in chosen), f"{lane} claims what the ingest reads"
        covered = chosen & self.authority.keys()
        wanted = chosen if entry["kind"] == "replay" else set()
        suits = covered == wanted or entry["kind"] == "erase"
        assert suits, f"{lane} is a {entry['kind']} of offsets that are not of this kind"
        assert not chosen & self.erased, f"{lane} claims what was erased"
        self.claims[lane] = chosen

    def _claimed(self, lane: str) -> set[Coordinate] | None:
        return None if lane == INGEST else self.claims.get(lane, set())

    def _selection(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        stored = self._decoded(value)
        missing = {digest for *_, digest in stored["pieces"]} - self._selections.keys()
        assert not missing, f"the selection {key[1]} can be found, and has no {missing}"
        self._selections[key[1]] = {
            (topic, incarnation, partition, offset)
            for topic, incarnation, partition, intervals in stored["partitions"]
            for start, until in intervals
            for offset in range(start, until)
        }.union(*(self._selections[digest] for *_, digest in stored["pieces"]))

    def _covers(self, lane: str, window: dict[str, Any]) -> list[Coordinate]:
        selected = self._selections[window["selection"]["digest"]] if window["selection"] else None
        return [
            (one["topic"], one["incarnation"], one["partition"], offset)
            for one in window["ranges"]
            for offset in range(one["from"], one["until"])
            if selected is None or (one["topic"], one["incarnation"], one["partition"], offset) in selected
        ]

    def _receipt(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        """A window that was committed before it was read is proven: now its rows are there."""
        lane, seq, token = key[1], int(key[2]), key[3]
        self._receipts.add((lane, seq, token))
        committed = self.windows[lane, seq]
        assert committed.record["attempt"]["token"] == token, f"{lane}/{seq} has the receipt of another attempt"
        for coordinate in committed.covers:
            if self.counting[TABLE][coordinate] == committed.generation:
                self._is_there(coordinate, committed.generation, f"{lane}/{seq} has its receipt")

    # rows

    def writes(self, coordinate: Coordinate, epoch: int) -> None:
        """An attempt is about to write a row."""
        known = self.known[coordinate]
        if self.notes_cuts:
            assert known.epoch in (None, epoch), f"the message at {coordinate} has changed its order epoch"
            known.epoch = epoch

    def removes(self, coordinate: Coordinate, generation: int) -> None:
        counts = self.counting[TABLE].get(coordinate, 0)
        assert generation != counts, f"what counts at {coordinate} was swept"
        assert generation < counts, f"a row was swept at {coordinate}, and no newer one is committed there"
        self.swept += 1

    def rows(self, sink: str, *, proven: bool) -> dict[Coordinate, int]:
        """What a reader of a sink has to be given now; of one that receipts name only what is `proven`."""
        return {
            coordinate: self._results.made[coordinate, generation]
            for coordinate, generation in self.counting[sink].items()
            if self._is_proven(sink, coordinate)
            or (not proven and generation in self._results.rows.get(coordinate, {}))
        }

    def _is_proven(self, sink: str, coordinate: Coordinate) -> bool:
        """Whether the window that counts there has a receipt: then there is a row, unless it was erased."""
        if coordinate in self.erased:
            return False
        name = self._holder[sink, coordinate]
        committed = self.windows[name]
        return not committed.writes_later or (*name, committed.record["attempt"]["token"]) in self._receipts

    # folders

    def _compacted(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        """A folder that counts holds each row that counts of its windows, once."""
        for folder in self._decoded(value)["folders"]:
            lane, seq, generation = folder["folder"].split("/")
            held = self._results.folders.get((lane, int(seq), int(generation)))
            assert held is not None, f"the folder {folder['folder']} counts, and is not there"
            for lane, start, until in folder["windows"]:
                for number in range(start, until):
                    committed = self.windows[lane, number]
                    for coordinate in committed.covers:
                        counts = self.counting[SINK][coordinate] == committed.generation
                        if counts and self._is_proven(SINK, coordinate):
                            assert (coordinate, committed.generation) in held, f"a compaction has lost {coordinate}"

    # what actors were told

    def told(self, lane: str, seq: int, token: str, *, committed: bool) -> None:
        self.look()
        found = self.windows.get((lane, seq))
        mine = found is not None and found.record["attempt"]["token"] == token
        said = "committed" if committed else "not committed"
        assert mine == committed, f"{lane}/{seq}: an attempt was told that it was {said}"
        if not committed:
            self._losers.add(token)


def _at(position: list[Any]) -> tuple[str, int, int]:
    return position[0], position[1], position[2]


def _exported(record: dict[str, Any]) -> dict[str, dict[int, int]]:
    """The positions of the partitions that the window reads; of a topic that fell away, none."""
    read = {(one["topic"], one["incarnation"], one["partition"]) for one in record["window"]["ranges"]}
    found: dict[str, dict[int, int]] = {topic: {} for topic, *_ in record["positions"]}
    for topic, incarnation, partition, offset in record["positions"]:
        if (topic, incarnation, partition) in read:
            found[topic][partition] = offset
    return found
