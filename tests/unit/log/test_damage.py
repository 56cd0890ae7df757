"""One damage anywhere in a data directory, stopped or killed: what is served afterwards is what was written, or there
is an error that names the file; and verify names it (F12)."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.log.helpers import tree
from tests.unit.log.stopped import BATCHES, CONFIG, change, killed, stopped, verify
from tidelog.kernel.errors import TidelogError
from tidelog.log.directory import LogDirectory
from tidelog.log.errors import LogError
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import iter_headers
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.disk import SimDisk

SYNCED = 15
FIRST = "data/t-0/00000000000000000000.log"
Batches = dict[int, bytes]
STATES = {"stopped": stopped(), "killed": killed(SYNCED)}


def written(disk: SimDisk) -> Batches:
    """Every batch by its offset, as it lies in the files."""
    found: Batches = {}
    for path, content in tree(disk, "data/t-0").items():
        if path.endswith(".log"):
            for position, header in iter_headers(content or b""):
                found[header.base_offset] = (content or b"")[position : position + header.size]
    return found


def logs_of(disk: SimDisk) -> dict[str, bytes | None]:
    return {path: content for path, content in tree(disk, "data").items() if path.endswith(".log")}


def served(log: PartitionLog) -> tuple[Batches, list[str]]:
    """Every batch that can be read, and what was said of the others; no offset is passed over in silence."""
    found: Batches = {}
    refused: list[str] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, 500, end_offset=log.log_end_offset).data
        except LogError as error:
            assert error.error_code == ErrorCode.CORRUPT_MESSAGE
            refused.append(str(error))
            offset += 1
            continue
        headers = list(iter_headers(data))
        assert headers, f"nothing at {offset} of {log.log_end_offset}"
        for position, header in headers:
            assert header.base_offset <= offset <= header.last_offset, f"{header.base_offset} was given for {offset}"
            found[header.base_offset] = data[position : position + header.size]
            offset = header.next_offset
    return found, refused


def outcome(disk: SimDisk, before: Batches, synced: int, lost: str = "") -> str:
    """Open the damaged directory as a node does. "whole", "refused" when it does not open, "errors" when some reads
    fail; anything else is a failure of the test."""
    hurt_logs = logs_of(disk)
    try:
        directory = LogDirectory.open(disk, "data")
    except TidelogError as error:
        assert "data/" in str(error), error
        return "refused"
    try:
        directory.load(lambda _: CONFIG, 0)
        log = directory.partitions["t", 0]
    except TidelogError as error:
        assert "data/" in str(error), error
        directory.abandon()
        assert logs_of(disk) == hurt_logs, "a start that was refused has changed a log"
        return "refused"
    found, refused = served(log)
    for offset, batch in found.items():
        assert batch == before[offset], f"another batch at {offset}"
    if lost != FIRST:  # that one, nobody can tell from one that has expired
        assert log.log_start_offset == 0
    assert log.log_end_offset >= synced, f"ends at {log.log_end_offset}, {synced} was synced"
    if not refused:
        assert sorted(found) == [o for o in sorted(before) if log.log_start_offset <= o < log.log_end_offset]
    assert all("data/t-0/" in what for what in refused)
    directory.abandon()
    return "errors" if refused else "whole"


def hurt(disk: SimDisk, path: str, kind: str, random: Random) -> None:
    if kind == "missing":
        disk.remove(path)
    elif kind == "flip":
        change(disk, path, lambda data: _flip(data, random.randrange(8 * len(data))))
    else:
        change(disk, path, lambda data: data.__delitem__(slice(random.randrange(len(data)), None)))


def _flip(data: bytearray, bit: int) -> None:
    data[bit // 8] ^= 1 << bit % 8


def files(disk: SimDisk) -> list[str]:
    return [path for path, content in sorted(tree(disk, "data").items()) if content and "/e-0/" not in path]


@pytest.mark.parametrize("kind", ["flip", "cut", "missing"])
@pytest.mark.parametrize("state", ["stopped", "killed"])
@pytest.mark.parametrize("number", range(40))
def test_one_damage(state: str, kind: str, number: int) -> None:
    base = STATES[state]

    def fresh() -> SimDisk:
        return base.crash(keep_page_cache=True)

    synced = 3 * (BATCHES if state == "stopped" else SYNCED)
    paths = files(fresh())
    if number >= len(paths):
        return
    path = paths[number]
    for seed in range(1 if kind == "missing" else 12):
        disk = fresh()
        before = written(disk)
        hurt(disk, path, kind, Random(f"{path}-{seed}"))
        findings, _ = verify(disk)
        try:
            found = outcome(disk, before, synced, path if kind == "missing" else "")
        except AssertionError as error:
            raise AssertionError(f"{kind} of {path}, seed {seed}: {error}") from None
        if found != "whole":
            assert [f for f in findings if f.severity == "damage"], f"{kind} of {path}, seed {seed}: verify is silent"


@pytest.mark.parametrize("state", ["stopped", "killed"])
@pytest.mark.parametrize("number", range(3 * SYNCED // 3))
def test_a_damaged_batch_that_was_synced_costs_its_readers_alone(state: str, number: int) -> None:
    disk = STATES[state].crash(keep_page_cache=True)
    before = written(disk)
    offset = sorted(before)[number]
    path = max(path for path in logs_of(disk) if "/t-0/" in path and int(path[-24:-4]) <= offset)
    position = next(at for at, header in iter_headers(disk.read_file(path) or b"") if header.base_offset == offset)
    change(disk, path, lambda data: _flip(data, 8 * (position + 65)))
    assert outcome(disk, before, 3 * SYNCED) == "errors"
