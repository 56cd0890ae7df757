"""What verify says of whole and of damaged directories; that it changes nothing it shows by having no way to."""

from __future__ import annotations

import pytest

from tests.unit.log.helpers import append, batch_of, mark, tree
from tests.unit.log.stopped import BATCHES, change, cut, damages, flip, killed, notes, stopped, verify, worked
from tidelog.log.txn_index import ABORTED_ENTRY
from tidelog.log.verify.report import Finding
from tidelog.protocol.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, TRANSACTIONAL, iter_headers
from tidelog.sim.disk import SimDisk

T = "data/t-0"


def logs(disk: SimDisk, suffix: str = ".log") -> list[str]:
    return [f"{T}/{name}" for name in disk.list_dir(T) if name.endswith(suffix)]


def positions(disk: SimDisk, path: str) -> list[int]:
    return [position for position, _ in iter_headers(disk.read_file(path) or b"")]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


class TestWhole:
    def test_a_clean_stop_leaves_nothing_to_say(self) -> None:
        disk = stopped()
        before = tree(disk, "data")
        findings, report = verify(disk, deep=True)
        assert findings == []
        assert (report.partitions, report.segments, report.batches) == (2, len(logs(disk)) + 1, BATCHES)
        assert report.bytes == sum(len(disk.read_file(path) or b"") for path in logs(disk))
        assert tree(disk, "data") == before
        assert len(logs(disk)) > 3 and len(disk.read_file(logs(disk, ".index")[0]) or b"") > 8

    def test_a_killed_node_leaves_notes_only(self) -> None:
        findings, _ = verify(killed(), deep=True)
        assert [(finding.severity, finding.file) for finding in findings] == [("note", "data")]

    @pytest.mark.parametrize("seed", range(20))
    def test_a_power_cut_is_no_damage(self, seed: int) -> None:
        disk, directory = worked(synced=seed)
        assert directory is not None
        disk._random.seed(seed)
        assert damages(disk.crash(keep_page_cache=False), deep=True) == []


class TestBatches:
    @pytest.mark.parametrize("at", [CRC_OFFSET, ATTRIBUTES_OFFSET, 30, 70, -1])
    def test_a_flipped_bit_is_named_with_its_place(self, at: int) -> None:
        disk = stopped()
        path = logs(disk)[1]
        place = positions(disk, path)[1]
        end = positions(disk, path)[2]
        change(disk, path, flip(end - 1 if at < 0 else place + at))
        found = only(damages(disk))
        assert (found.file, found.position) == (path, place) and found.offset is not None
        assert found.line() == f"damage: {path} at byte {place} (offset {found.offset}): the checksum does not match"

    @pytest.mark.parametrize("at", [8, 10, 11, 16])
    def test_a_length_or_format_that_leads_nowhere_does_not_hide_the_rest(self, at: int) -> None:
        disk = stopped()
        path = logs(disk)[1]
        place, other = positions(disk, path)[1], positions(disk, path)[-1]
        change(disk, path, flip(place + at, 2))
        change(disk, path, flip(other + 65))
        assert [finding.position for finding in damages(disk) if finding.file == path] == [place, other]

    def test_offsets_that_go_back_or_leave_the_segment(self) -> None:
        disk = stopped()
        path = logs(disk)[1]
        place = positions(disk, path)[2]
        change(disk, path, flip(place + 4))
        assert "belongs to the next segment" in damages(disk)[0].what
        disk = stopped()
        change(disk, logs(disk)[-1], flip(positions(disk, logs(disk)[-1])[1] + 7, 6))
        assert any("go back" in finding.what or "missing" in finding.what for finding in damages(disk))

    def test_an_epoch_that_falls(self) -> None:
        disk = stopped()
        path = logs(disk)[-1]
        change(disk, path, flip(positions(disk, path)[0] + 15, 1))
        assert any("leader epoch" in finding.what for finding in damages(disk))

    def test_a_file_that_was_cut_and_one_that_is_gone(self) -> None:
        disk = stopped()
        change(disk, logs(disk)[1], cut(10))
        assert any("is cut off" in finding.what for finding in damages(disk))
        disk = stopped()
        disk.remove(logs(disk)[1])
        assert any("are missing before it" in finding.what for finding in damages(disk))

    def test_a_lost_tail_after_a_clean_stop_is_told_by_the_recovery_point(self) -> None:
        disk = stopped()
        path = logs(disk)[-1]
        change(disk, path, cut(len(disk.read_file(path) or b"") - positions(disk, path)[-1]))
        assert any("was synced" in finding.what and finding.file == path for finding in damages(disk))

    def test_a_torn_tail_is_a_note_and_damage_before_the_recovery_point_is_damage(self) -> None:
        disk = killed()
        change(disk, logs(disk)[-1], cut(10))
        assert damages(disk) == []
        assert any("the next start cuts here" in finding.what for finding in notes(disk))
        disk = killed()
        change(disk, logs(disk)[0], flip(70))
        assert only(damages(disk)).file == logs(disk)[0]

    def test_deep_finds_what_a_writer_got_wrong_under_a_right_checksum(self) -> None:
        from crc32c import crc32c

        def lie(data: bytearray) -> None:
            (_, first), (second, _) = list(iter_headers(data))[:2]
            data[60] = first.record_count - 1
            data[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc32c(bytes(data[ATTRIBUTES_OFFSET:second])).to_bytes(4, "big")

        disk = stopped()
        change(disk, logs(disk)[1], lie)
        assert damages(disk) == []
        assert only(damages(disk, deep=True)).position == 0

    def test_gaps_below_what_was_compacted_are_fine(self) -> None:
        disk = stopped()
        gone = logs(disk)[1]
        disk.remove(gone)
        for suffix in ("index", "timeindex"):
            disk.remove(gone.replace("log", suffix))
        assert only(damages(disk)).file == logs(disk)[1]
        disk.replace_file("data/cleaner-offset-checkpoint", b"0\n1\nt 0 90\n")
        assert damages(disk) == []


class TestBesideTheLog:
    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize("bit", range(0, 64, 5))
    def test_every_flipped_bit_of_an_index(self, suffix: str, bit: int) -> None:
        disk = stopped()
        path = logs(disk, suffix)[1]
        change(disk, path, flip(bit // 8, bit % 8))
        assert {finding.file for finding in damages(disk)} == {path}

    @pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
    def test_cut_missing_and_zeros(self, suffix: str) -> None:
        for how in (cut(3), lambda data: data.extend(bytes(24))):
            disk = stopped()
            path = logs(disk, suffix)[-1 if suffix == ".snapshot" else 1]
            change(disk, path, how)
            assert {finding.file for finding in damages(disk)} == {path}
        disk.remove(path)
        assert only(damages(disk)).what.startswith("missing")

    def test_a_short_index_is_a_note(self) -> None:
        disk = stopped()
        change(disk, logs(disk, ".timeindex")[1], cut(12))
        assert "lacks the newest timestamp" in only(damages(disk)).what

    @pytest.mark.parametrize("byte", range(56))
    def test_every_byte_of_a_producer_snapshot(self, byte: int) -> None:
        disk = stopped()
        path = logs(disk, ".snapshot")[1]
        change(disk, path, flip(byte))
        assert only(damages(disk)).file == path

    def aborted(self) -> tuple[SimDisk, str, tuple[int, int, int, int, int]]:
        """A directory whose last segment ends with an aborted transaction, its index, and the entry in it."""
        disk, directory = worked()
        log = directory.partitions["t", 0]
        log.roll(0)
        first = append(log, batch_of(producer_id=9, attributes=TRANSACTIONAL), leader_epoch=2).base_offset
        mark(log, 9, commit=False, leader_epoch=2)
        mark(log, 8, commit=False, leader_epoch=2)  # without data: it needs no entry
        path = f"{T}/{log.segments[-1].base_offset:020d}.txnindex"
        directory.close(0, high_watermarks={("t", 0): log.log_end_offset, ("e", 0): 0}, broker_epoch=5)
        return disk, path, (0, 9, first, first + 1, first + 2)

    def test_aborted_transactions(self) -> None:
        disk, path, entry = self.aborted()
        assert disk.read_file(path) == ABORTED_ENTRY.pack(*entry)
        assert damages(disk) == []

    @pytest.mark.parametrize(
        ("field", "by", "said"),
        [
            (0, 1, "version 1"),
            (1, 1, "no marker at"),
            (2, 9, "not of this segment"),
            (3, 1, "no marker at"),
            (3, 9, "not of this segment"),
            (4, 9, "not of this segment"),
        ],
    )
    def test_a_wrong_entry_of_an_aborted_transaction(self, field: int, by: int, said: str) -> None:
        disk, path, entry = self.aborted()
        wrong = list(entry)
        wrong[field] += by
        disk.replace_file(path, ABORTED_ENTRY.pack(*wrong))
        findings = damages(disk)
        assert all(finding.file == path for finding in findings)
        assert [finding.what for finding in findings if said in finding.what]

    @pytest.mark.parametrize(
        ("content", "said"),
        [(b"", "lacks the transaction of producer 9"), (b"x" * 33, "no multiple of 34"), (None, "missing")],
    )
    def test_an_aborted_transaction_that_is_not_in_the_index(self, content: bytes | None, said: str) -> None:
        disk, path, _ = self.aborted()
        if content is None:
            disk.remove(path)
        else:
            disk.replace_file(path, content)
        assert any(said in finding.what and finding.file == path for finding in damages(disk))

    def test_leader_epochs(self) -> None:
        path = f"{T}/leader-epoch-checkpoint"
        for content in (b"0\n1\n0 0\n", b"0\n3\n0 0\n1 31\n2 60\n", b"0\n3\n0 0\n1 30\n", b"0\n2\n1 0\n0 30\n"):
            disk = stopped()
            disk.replace_file(path, content)
            assert {finding.file for finding in damages(disk)} == {path}, content
        disk.remove(path)
        assert only(damages(disk)).file == path

    def test_partition_metadata(self) -> None:
        path = f"{T}/partition.metadata"
        disk = stopped()
        change(disk, path, cut(20))
        assert only(damages(disk)).file == path
        disk.remove(path)
        assert only(damages(disk)).file == path


class TestTheDirectory:
    @pytest.mark.parametrize(
        "name",
        [
            "meta.properties",
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
        ],
    )
    def test_missing_and_unreadable_files(self, name: str) -> None:
        disk = stopped()
        disk.remove(f"data/{name}")
        assert only(damages(disk)).file == f"data/{name}"
        disk.replace_file(f"data/{name}", b"\xff\xfe")
        assert only(damages(disk)).file == f"data/{name}"

    def test_checkpoints_that_disagree_with_the_logs(self) -> None:
        disk = stopped()
        disk.replace_file("data/replication-offset-checkpoint", b"0\n1\nt 0 91\n")
        assert only(damages(disk)).file == "data/replication-offset-checkpoint"
        disk = stopped()
        disk.replace_file("data/log-start-offset-checkpoint", b"0\n1\nt 0 91\n")
        assert only(damages(disk)).file == "data/log-start-offset-checkpoint"
        disk = stopped()
        disk.replace_file("data/recovery-point-offset-checkpoint", b"0\n2\nt 0 91\ngone 4 1\n")
        assert "up to 91 was synced" in only(damages(disk)).what
        assert only(notes(disk)).what == "names gone-4, which is not here"

    def test_the_marker_of_a_clean_stop(self) -> None:
        disk = stopped()
        disk.replace_file("data/.kafka_cleanshutdown", b"{")
        assert only(damages(disk)).file == "data/.kafka_cleanshutdown"

    def test_leftovers_are_notes(self) -> None:
        disk = stopped()
        leftovers = [f"{T}/00000000000000000000.log.deleted", f"{T}/x.tmp", "data/what-is-this", f"{T}/readme"]
        for path in leftovers:
            disk.replace_file(path, b"")
        disk.make_dirs("data/t-1.0123456789abcdef0123456789abcdef-delete")
        disk.make_dirs("data/t-2.0123456789abcdef0123456789abcdef-stray")
        assert damages(disk) == []
        assert {finding.file for finding in notes(disk)} == {
            *leftovers,
            "data/t-1.0123456789abcdef0123456789abcdef-delete",
            "data/t-2.0123456789abcdef0123456789abcdef-stray",
        }

    def test_a_file_of_garbage_is_cut_short_in_the_telling(self) -> None:
        disk = stopped()
        path = logs(disk, ".index")[1]
        disk.replace_file(path, b"\x00\x00\x00\x01\x00\x00\x00\x01" * 1000)
        findings, report = verify(disk)
        assert len(findings) == 21 and report.damages >= 999
        assert "more findings are not shown" in findings[-1].what
