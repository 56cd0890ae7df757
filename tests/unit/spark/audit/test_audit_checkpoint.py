"""What a flow claims, from the files of its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.spark.audit import AuditError, checkpoint, claim_of
from tidelog.spark.audit.checkpoint import claims_of


def write(home: Path, batch: int, offsets: str, *, is_committed: bool = True) -> None:
    for name, text in (
        ("offsets", f'v1\n{{"batchWatermarkMs":0}}\n{offsets}'),
        ("commits", 'v1\n{"nextBatchWatermarkMs":0}'),
    ):
        (home / name).mkdir(exist_ok=True)
        (home / name / f".{batch}.crc").write_bytes(b"crc\0")
        if name == "offsets" or is_committed:
            (home / name / str(batch)).write_text(text)


def test_the_last_committed_batch_counts_and_not_the_one_under_way(tmp_path: Path) -> None:
    write(tmp_path, 9, '{"t":{"0":5},"$ids":{"t":"A"}}')
    write(tmp_path, 10, '{"t":{"0":7,"1":3},"$ids":{"t":"A"}}')
    write(tmp_path, 11, '{"t":{"0":9,"1":3},"$ids":{"t":"A"}}', is_committed=False)
    claim = claim_of(tmp_path)
    assert (claim.batch, claim.ends, claim.topic_ids) == (10, {("t", 0): 7, ("t", 1): 3}, {"t": "A"})
    assert not claim.created_anew


def test_a_topic_whose_id_changed_was_created_anew(tmp_path: Path) -> None:
    write(tmp_path, 0, '{"t":{"0":5},"u":{"0":1},"$ids":{"t":"A","u":"U"}}')
    write(tmp_path, 1, '{"t":{"0":2},"u":{"0":1},"$ids":{"t":"B","u":"U"}}')
    assert claim_of(tmp_path).created_anew == {"t"}


def test_an_old_batch_that_spark_removes_meanwhile_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault round of 17 November: the audit ran beside a flow that had just made its 148th batch."""
    for batch in range(3):
        write(tmp_path, batch, f'{{"t":{{"0":{batch}}},"$ids":{{"t":"{"AAB"[batch]}"}}}}')
    listed = checkpoint._batches(tmp_path / "offsets")
    (tmp_path / "offsets" / "0").unlink()
    monkeypatch.setattr(checkpoint, "_batches", lambda directory: listed)
    claim = claim_of(tmp_path)
    assert (claim.batch, claim.created_anew) == (2, {"t"})
    (tmp_path / "offsets" / "2").unlink()
    with pytest.raises(AuditError, match=r"offsets/2: the checkpoint has committed a batch whose offsets"):
        claim_of(tmp_path)


def test_without_a_committed_batch_nothing_is_claimed(tmp_path: Path) -> None:
    assert claim_of(tmp_path).ends == {}
    write(tmp_path, 0, '{"t":{"0":5}}', is_committed=False)
    assert (claim_of(tmp_path).batch, claim_of(tmp_path).ends) == (-1, {})


def test_what_is_no_checkpoint_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="there is no checkpoint"):
        claim_of(tmp_path / "none")
    write(tmp_path, 3, "[1]")
    with pytest.raises(AuditError, match=r"offsets/3: not the offsets"):
        claim_of(tmp_path)
    (tmp_path / "offsets" / "3").unlink()
    with pytest.raises(AuditError, match=r"does not have"):
        claim_of(tmp_path)


def test_a_query_with_several_sources_claims_for_each(tmp_path: Path) -> None:
    assert claims_of(tmp_path / "none") == []
    write(tmp_path, 0, '{"t":{"0":5}}\n{"u":{"0":7}}', is_committed=False)
    assert claims_of(tmp_path) == []
    write(tmp_path, 0, '{"t":{"0":5}}\n{"u":{"0":7}}')
    assert [one.ends for one in claims_of(tmp_path)] == [{("t", 0): 5}, {("u", 0): 7}]
