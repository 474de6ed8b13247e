"""Rows on disk: one SQLite file per folder, one transaction per cell; what was committed survives whatever happens next."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...analysis.provenance import now
from ...core import DataError
from .encoding import rows_from_text
from .experiment import Cell, Row, config
from .provenance import Run
from .tasks import Outcome, Task

NAME, LOCK = "rows.sqlite", "rows.lock"
APPLICATION, FORMAT = 0x65696773, 1  # "eigs", in the file's header
PATIENCE = 30.0  # seconds to wait for another process in the middle of a transaction

SCHEMA = f"""
BEGIN EXCLUSIVE;
CREATE TABLE runs (
  id INTEGER PRIMARY KEY, started TEXT NOT NULL, command TEXT NOT NULL, git TEXT NOT NULL, profile TEXT NOT NULL,
  seed INTEGER NOT NULL, versions TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE cells (
  key TEXT PRIMARY KEY, experiment TEXT NOT NULL, version INTEGER NOT NULL, config TEXT NOT NULL, seed INTEGER NOT NULL,
  run INTEGER NOT NULL REFERENCES runs (id), rows TEXT, error TEXT, seconds REAL NOT NULL, machine TEXT NOT NULL,
  finished TEXT NOT NULL, digest TEXT NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
CELL = "key, experiment, version, config, seed, run, rows, error, seconds, machine, finished"


@dataclass(frozen=True)
class Kept:
    """What the store holds of one cell: its rows or the sentence with which it failed, its cost, and its run."""

    rows: str | None
    error: str | None
    seconds: float
    machine: dict[str, str | int]
    run: int

    def table(self, cell: Cell) -> list[Row]:
        """Rows with the fields of their config; none of a cell that failed."""
        return [] if self.rows is None else rows_from_text(self.rows, cell)


class Store:
    """The rows of a folder. `reading` one may be done at any time, `writing` by one process at a time.

    - A cell that has ended well is never replaced. One that has failed is, by its next try.
    - Every record carries a digest of itself, so that damage is noticed even where SQLite has no means to.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection):
        self.path, self._connection = path, connection

    @classmethod
    @contextmanager
    def reading(cls, folder: str | Path) -> Iterator[Self]:
        """Open the store of a folder that has one."""
        path = Path(folder) / NAME
        if not path.is_file():
            raise DataError(f"{folder} holds no {NAME}; expected the folder of a run: eigenscape reproduce NAME --out {folder}")
        with _opened(path, "rw") as connection:
            yield cls(path, connection)

    @classmethod
    @contextmanager
    def writing(cls, folder: str | Path) -> Iterator[Self]:
        """Open or make the store of a folder, for this process alone until it ends, however it ends."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder), _opened(folder / NAME, "rwc") as connection:
            yield cls(folder / NAME, connection)

    def begin(self, run: Run) -> int:
        """Record the start of a run; its number goes with every cell."""
        values = (run.started, run.command, run.commit, run.profile, run.seed, json.dumps(run.versions))
        into = "INSERT INTO runs (started, command, git, profile, seed, versions, digest) VALUES (?, ?, ?, ?, ?, ?, ?)"
        return self._write(into, (*values, _digest(values))) or 0

    def put(self, run: int, task: Task, outcome: Outcome) -> None:
        """Keep a cell: its rows, or its failure unless rows are there already; all of it or, if killed, nothing."""
        given, machine = json.dumps(config(task.cell)), json.dumps(outcome.machine)
        about = (task.key, task.experiment.name, task.experiment.version, given, task.seed, run)
        values = (*about, outcome.rows, outcome.error, outcome.seconds, machine, now())
        into = f"""INSERT INTO cells ({CELL}, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET run = excluded.run, rows = excluded.rows, error = excluded.error,
            seconds = excluded.seconds, machine = excluded.machine, finished = excluded.finished, digest = excluded.digest
            WHERE cells.rows IS NULL"""
        self._write(into, (*values, _digest(values)))

    def kept(self, tasks: Iterable[Task]) -> dict[str, Kept]:
        """Return what is there of these cells, by key, in their order."""
        wanted = [task.key for task in tasks]
        found: dict[str, Kept] = {}
        for part in (wanted[i : i + 500] for i in range(0, len(wanted), 500)):
            marks = ", ".join("?" * len(part))
            for record in self._read(f"SELECT {CELL}, digest FROM cells WHERE key IN ({marks})", part):
                key, *_, run, rows, error, seconds, machine, _, _ = self._intact(record)
                found[key] = Kept(rows, error, seconds, json.loads(machine), run)
        return {key: found[key] for key in wanted if key in found}

    def runs(self) -> dict[int, Run]:
        """Return every start of the machine in this folder, by its number."""
        found = {}
        for number, *record in self._read("SELECT id, started, command, git, profile, seed, versions, digest FROM runs"):
            started, command, git, profile, seed, versions, _ = self._intact(record)
            found[number] = Run(started, command, git, profile, seed, json.loads(versions))
        return found

    def costs(self) -> dict[str, list[float]]:
        """Return what cells have cost so far, by the name of their experiment."""
        found: dict[str, list[float]] = {}
        for name, seconds in self._read("SELECT experiment, seconds FROM cells WHERE rows IS NOT NULL"):
            found.setdefault(name, []).append(seconds)
        return found

    def _write(self, statement: str, values: tuple) -> int | None:
        try:
            return self._connection.execute(statement, values).lastrowid
        except sqlite3.Error as error:
            raise DataError(
                f"{self.path} could not be written to ({error}); cells that have ended are safe: mend that, and type the same "
                "command again."
            ) from None

    def _read(self, statement: str, values: Iterable = ()) -> list[tuple]:
        try:
            return self._connection.execute(statement, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise _refusal(self.path, error) from None

    def _intact(self, record: Iterable) -> list:
        *values, digest = record
        if digest != _digest(values):
            raise _damaged(self.path, "a record does not match its digest")
        return [*values, digest]


def _digest(values: Iterable) -> str:
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:32]


def _damaged(path: Path, what: str) -> DataError:
    return DataError(f"{path} is damaged ({what}); expected rows that eigenscape wrote: delete it, or use another --out.")


def _refusal(path: Path, error: sqlite3.Error) -> DataError:
    """Put what SQLite says into a sentence that helps."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DataError(f"{path} is in use by another program; expected it free: close that, and try again.")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY):
        return DataError(f"{path} cannot be opened ({error}); expected a file that may be written to: use another --out.")
    return _damaged(path, str(error))


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection to a store that has been looked through; a file of another kind is left as it is."""
    address = f"{path.resolve().as_uri()}?mode={mode}"
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=PATIENCE)
    except sqlite3.Error as error:
        raise _refusal(path, error) from None
    try:
        _look_through(path, connection)
        yield connection
    finally:
        connection.close()


def _look_through(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse what is not a store or is damaged; make an empty file a store."""

    def ask(question: str) -> Any:
        return connection.execute(question).fetchone()[0]

    try:
        application, tables = ask("PRAGMA application_id"), ask("SELECT count(*) FROM sqlite_schema")
        if application == 0 and tables == 0:
            connection.executescript(SCHEMA)
        elif application != APPLICATION:
            raise DataError(f"{path} is a database of another program; expected one that eigenscape wrote: use another --out.")
        if (version := ask("PRAGMA user_version")) != FORMAT:
            raise DataError(f"{path} has format {version}, this release reads {FORMAT}; use another --out, or that release.")
        if (found := ask("PRAGMA integrity_check(1)")) != "ok":
            raise _damaged(path, str(found).splitlines()[-1])
    except sqlite3.Error as error:
        raise _refusal(path, error) from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system gives back when the process ends in whatever way."""
    connection = sqlite3.connect(folder / LOCK, isolation_level=None, timeout=0)
    try:
        _lock(connection, folder)
        yield
    finally:
        connection.close()


def _lock(connection: sqlite3.Connection, folder: Path) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise _refusal(folder / LOCK, error) from None
        raise DataError(
            f"another process is measuring in {folder}; wait for it, look at what it has with --redraw, or use another --out."
        ) from None
    except sqlite3.DatabaseError as error:
        raise _refusal(folder / LOCK, error) from None
