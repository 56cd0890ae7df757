"""Which of a reader's types a writer's type is read as, by Avro's rules of resolution."""

from __future__ import annotations

from tidelog.spark.payload.avro.parsed import AvroSchema, Node
from tidelog.spark.payload.avro.types import branches
from tidelog.spark.payload.errors import PayloadError

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
RECORDS = ("record", "error")


def kind_of(node: Node) -> str:
    return str(node["type"]) if isinstance(node, dict) else str(node)


def promotes(written: str, read: str) -> bool:
    return read in _PROMOTIONS.get(written, ())


def check_fits(written: Node, read: Node) -> None:
    """Not for unions. Records match by their fields: many a record was renamed with its package."""
    w, r = kind_of(written), kind_of(read)
    if w in RECORDS and r in RECORDS:
        return
    if w != r and not promotes(w, r):
        raise PayloadError(f"the writer's {_called(written)} cannot be read as the reader's {_called(read)}")
    if w == "fixed" and written["size"] != read["size"]:
        raise PayloadError(f"the writer's {_called(written)} has {written['size']} bytes, the reader's {read['size']}")


def chosen(reader: AvroSchema, union: Node, written: Node) -> tuple[str, Node]:
    """The branch of a reader's union that a written type is read as, with its member's name: itself before a wider one,
    and of named types the one of that name before another of its kind."""
    members = [(member, reader.look_up(branch)) for member, branch in branches(reader, union)]
    kind, name = kind_of(written), _name(written)
    same = [pair for pair in members if kind_of(pair[1]) == kind]
    if same and not name:
        return same[0]
    for by in ("name", "alias", "name without its namespace"):
        for pair in same:
            if _matches(pair[1], name, by):
                return pair
    if kind in RECORDS and len(same) == 1:
        return same[0]
    for member, read in members:
        if promotes(kind, kind_of(read)):
            return member, read
    raise PayloadError(f"the writer's {_called(written)} is none of the reader's union")


def _matches(read: Node, name: str, by: str) -> bool:
    if by == "alias":
        return name in read.get("aliases", ())
    return _name(read) == name if by == "name" else _short(_name(read)) == _short(name)


def _name(node: Node) -> str:
    return str(node.get("name", "")) if isinstance(node, dict) else ""


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _called(node: Node) -> str:
    return f"{kind_of(node)} {_name(node)}".strip()
