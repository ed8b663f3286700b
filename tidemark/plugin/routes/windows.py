"""The page of a window."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tidemark.plugin import serving
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.views.newer_windows import NewerWindows, newer_windows
from tidemark.views.window import WindowShown, window_of
from tidemark.views.windows_of_lane import MAX_WINDOWS, FilesOfOffsets, WindowFilter, WindowsOfLane, windows_of_lane

Lane = Annotated[str, Path(min_length=1, max_length=200)]
Seq = Annotated[int, Path(ge=1, lt=2**63)]


def _no_window(name: str, lane: str, seq: int) -> str:
    return f"{name} has no window {lane}/{seq}: its page Overview lists the windows of each lane"


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["windows"])

    @router.get("/streams/{name}/windows/{lane}/{seq}", include_in_schema=False)
    async def page(request: Request, name: str, lane: str, seq: str, user: User) -> Response:  # noqa: ARG001 (the script reads them)
        return await access.page("window", request, name, user)

    @router.get("/api/streams/{name}/windows/{lane}", responses=serving.PROBLEMS)
    async def of_lane(
        name: str,
        lane: Lane,
        user: User,
        below: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
        until: Annotated[int | None, Query(ge=0, lt=2**63, description="a time in ms since 1970")] = None,
        count: Annotated[int, Query(ge=1, le=MAX_WINDOWS)] = 50,
        run: Annotated[str, Query(max_length=600, description="only those whose run has this text in its name")] = "",
        holding: Annotated[
            FilesOfOffsets, Query(description="only those with dead letters, or that passed over offsets")
        ] = "",
    ) -> WindowsOfLane:
        """The committed windows of a lane, the newest first: below a number, or committed before a time.

        Where only some are wanted, some thousands are looked at: `looked_down_to` says where to go on.
        """
        return await access.ask(
            name,
            user,
            lambda opened: windows_of_lane(
                opened, lane, WindowFilter(run, holding), below=below, until=until, count=count
            ),
            "no such lane: the stream's page lists its lanes",
            ledger_only=True,
        )

    @router.get("/api/streams/{name}/windows/{lane}/{seq}", responses=serving.PROBLEMS)
    async def one_window(name: str, lane: Lane, seq: Seq, user: User) -> WindowShown:
        """One window: ranges, tallies, gaps with their reasons, its attempt, its sinks, and the time of each step."""
        return await access.ask(
            name, user, lambda opened: window_of(opened, lane, seq), _no_window(name, lane, seq), ledger_only=True
        )

    @router.get("/api/streams/{name}/windows/{lane}/{seq}/newer", responses=serving.PROBLEMS)
    async def newer(name: str, lane: Lane, seq: Seq, user: User) -> NewerWindows:
        """At how many offsets a window's results still count, and which newer windows have replaced or erased the others."""
        # It reads the whole history.
        return await access.ask_long(
            name,
            user,
            f"newer {lane}/{seq}",
            lambda opened: newer_windows(opened, lane, seq),
            ledger_only=True,
            missing=_no_window(name, lane, seq),
        )

    return router
