"""Which files of a folder are its table: its Parquet files, or those of the newest version of a Delta table."""

from __future__ import annotations

from pathlib import Path, PurePath
from urllib.parse import unquote

from tidemark.errors import DELTALAKE, PackageMissing, WrongUse, install

_LOG = "_delta_log"


def files_in(folder: Path) -> list[Path]:
    """The files of the table in a folder, by name. Raises WrongUse if it has none, or if they cannot be known."""
    logs = [path for path in folder.rglob(_LOG) if path.is_dir()]
    if folder / _LOG in logs:
        return _of_delta(folder)
    if logs:
        raise WrongUse(f"{logs[0].parent}: is a Delta table within the folder. Name the table itself")
    files = sorted(path for path in folder.rglob("*.parquet") if not _passed_over(path.relative_to(folder)))
    if not files:
        raise WrongUse(f"{folder}: the folder has no file that ends in .parquet")
    return files


def _passed_over(path: PurePath) -> bool:
    """Whether a file is no data, or not yet, as Spark and Hive have it: in `_temporary`, for example. Partitions are data."""
    *folders, name = path.parts
    return name.startswith(("_", ".")) or any(folder.startswith(("_", ".")) and "=" not in folder for folder in folders)


def _of_delta(folder: Path) -> list[Path]:
    try:
        # Only Delta tables need it, and it is an extra of the package.
        import pyarrow as pa
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError:
        raise PackageMissing(
            f"{folder}: is a Delta table, and some of its files may no longer count. Reading it needs the package "
            f"deltalake: {install(DELTALAKE)}. Or write the rows into a folder of plain Parquet files"
        ) from None
    log = folder / _LOG
    if link := next((path for path in (log, *log.rglob("*")) if path.is_symlink()), None):
        raise WrongUse(f"{link}: is a symbolic link. Name the table where its log is")
    try:
        table = DeltaTable(folder.absolute().as_uri())
        beyond = {"deletionVectors", "columnMapping"} & {*(table.protocol().reader_features or ())}
        names = [unquote(name) for name in pa.table(table.get_add_actions()).column("path").to_pylist()]
    except (DeltaError, ValueError, TypeError, RecursionError) as problem:
        raise WrongUse(
            f"{folder}: the Delta table cannot be read: {(str(problem).splitlines() or [''])[0]}"
        ) from problem
    if beyond:
        raise WrongUse(
            f"{folder}: is a Delta table with {', '.join(sorted(beyond))}, which its files do not show. Write the rows "
            "into a folder of plain Parquet files"
        )
    if elsewhere := [name for name in names if "://" in name or ".." in PurePath(name).parts or name.startswith("/")]:
        raise WrongUse(f"{folder}: the Delta table has the file {elsewhere[0]}, which is not below its folder")
    return sorted(folder / name for name in names)
