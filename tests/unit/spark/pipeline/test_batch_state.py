"""What flows keep between batches: which state a batch starts from, what is refused, what is removed and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidelog.spark.pipeline.batch_state import (
    FOLDERS_MAX,
    BatchState,
    Folder,
    Manifest,
    StateError,
    Terms,
    check_kept,
    kept_home,
    later,
    small_ones,
)

DEFINITION = {"by": (("id", "payload.id"),), "watermark": 10}


def schema(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return {"type": "struct", "fields": fields}


def state_of(home: Path, definition: dict[str, Any] | None = None, **schemas: Any) -> BatchState:
    return BatchState(home, Terms(DEFINITION if definition is None else definition, schemas))


def after(before: Manifest, batch: int, *folders: str) -> Manifest:
    parts = {"keys": [Folder(name=name, rows=1) for name in folders]}
    return msgspec.structs.replace(before, batch=batch, parts=parts, counts={"rows": batch})


def write(state: BatchState, batch: int, attempt: str) -> str:
    folder = state.folder(batch, attempt, "keys")
    folder.mkdir()
    (folder / "part.parquet").touch()
    return folder.name


def folders(home: Path) -> set[str]:
    return {path.name for path in home.iterdir() if path.is_dir()}


def test_a_repeated_batch_starts_from_what_the_batch_before_it_kept(tmp_path: Path) -> None:
    state = state_of(tmp_path / "q")
    assert state.before(0) == state.first()
    assert state.last() is None
    first = after(state.before(0), 0)
    state.keep(first)
    assert state.before(1) == first
    state.keep(after(first, 1))
    assert state.before(1) == first  # batch 1 was kept, and comes again all the same
    assert state.before(2).counts == {"rows": 1}
    with pytest.raises(StateError, match="no state for batch 4"):
        state.before(4)


def test_folders_stay_as_long_as_a_manifest_names_them_and_dead_attempts_go(tmp_path: Path) -> None:
    state = state_of(tmp_path / "q")
    manifest = state.before(0)
    zero = write(state, 0, "a")
    manifest = after(manifest, 0, zero)
    state.keep(manifest)
    dead, one = write(state, 1, "dead"), write(state, 1, "b")
    assert folders(state.home) == {zero, dead, one}
    manifest = after(manifest, 1, zero, one)
    state.keep(manifest)
    assert folders(state.home) == {zero, one}
    two = write(state, 2, "c")
    manifest = after(manifest, 2, two)  # it has merged the others into its own
    state.keep(manifest)
    assert folders(state.home) == {zero, one, two}  # batch 2 may come again, from the state after batch 1
    state.keep(after(manifest, 3, two))
    assert folders(state.home) == {two}
    assert sorted(path.name for path in state.home.glob("*.json")) == ["2.json", "3.json"]


def test_a_changed_definition_is_refused_by_its_keys(tmp_path: Path) -> None:
    state_of(tmp_path).keep(after(state_of(tmp_path).before(0), 0))
    assert state_of(tmp_path).before(1).batch == 0
    one = "the flow's watermark is not the one its state was made with; rebuild it with"
    with pytest.raises(StateError, match=one):
        state_of(tmp_path, {**DEFINITION, "watermark": 11}).before(1)
    with pytest.raises(StateError, match="the flow's by, left and watermark are not those its state was made with"):
        state_of(tmp_path, {"left": "orders", "watermark": 9}).before(1)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (schema(id="long"), schema(id="long"), None),
        (schema(id="long"), schema(id="string"), "rows.id"),
        (schema(id="long"), schema(id="long", more="string"), None),
        (schema(id="long", less="string"), schema(id="long"), None),
        (schema(a=schema(b="long")), schema(a=schema(b="long", c="int")), None),
        (schema(a=schema(b="long")), schema(a=schema(b="int")), "rows.a.b"),
        (schema(a=schema(b="long")), schema(a="long"), "rows.a"),
        (
            schema(a={"type": "array", "elementType": schema(b="long"), "containsNull": True}),
            schema(a={"type": "array", "elementType": schema(b="int"), "containsNull": True}),
            "rows.a.b",
        ),
        (
            schema(a={"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}),
            schema(a={"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}),
            None,
        ),
    ],
)
def test_rows_may_get_columns_and_lose_some_but_none_changes_its_type(
    old: Any, new: Any, wrong: str | None, tmp_path: Path
) -> None:
    state = state_of(tmp_path, rows=old)
    state.keep(after(state.before(0), 0))
    if wrong is None:
        assert state_of(tmp_path, rows=new).before(1).schemas == {"rows": new}
    else:
        with pytest.raises(StateError, match=f"^{wrong} is of another type than in the flow's state"):
            state_of(tmp_path, rows=new).before(1)


def test_the_check_before_a_start_asks_the_state_of_the_checkpoints_query(tmp_path: Path) -> None:
    terms, other = Terms(DEFINITION), Terms({**DEFINITION, "watermark": 11})
    check_kept(tmp_path, "flow", other)  # it has not run yet
    checkpoint = tmp_path / "checkpoints" / "flow"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
    check_kept(tmp_path, "flow", other)  # it has, and no batch came so far
    state = BatchState(kept_home(tmp_path, "flow") / "q", terms)
    state.keep(after(state.before(0), 0))
    check_kept(tmp_path, "flow", terms)
    with pytest.raises(StateError, match="watermark"):  # kept, but Spark has not committed the batch
        check_kept(tmp_path, "flow", other)
    (checkpoint / "commits" / "0").touch()
    check_kept(tmp_path, "flow", terms)
    with pytest.raises(StateError, match="watermark"):
        check_kept(tmp_path, "flow", other)
    (checkpoint / "commits" / "1").touch()
    with pytest.raises(StateError, match="no state for batch 2"):
        check_kept(tmp_path, "flow", terms)
    (checkpoint / "metadata").write_text(json.dumps({"id": "another"}))
    with pytest.raises(StateError, match="no state for batch 2"):
        check_kept(tmp_path, "flow", terms)


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text('{"batch": 0, "definition": "[]", "data": "0-a"}')
    with pytest.raises(StateError, match="no state of this version"):
        state_of(tmp_path).before(1)


def test_small_folders_are_merged_when_there_are_many() -> None:
    many = [Folder(name=str(number), rows=100 - number) for number in range(FOLDERS_MAX + 1)]
    assert small_ones(many[1:]) == []
    assert [one.rows for one in small_ones(many)] == list(range(100 - FOLDERS_MAX, 100 - FOLDERS_MAX + 8))


def test_a_watermark_never_goes_back() -> None:
    assert later(None, None, 5) is None
    assert later(None, 20, 5) == 15
    assert later(15, 10, 5) == 15
    assert later(15, None, 5) == 15
    assert later(15, 21, 5) == 16
