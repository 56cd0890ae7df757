"""What befell the flows over time, for the report: a file of JSON lines for each flow, and one for the runs.

    WORK/history/run.jsonl          starts and ends of runs, and those that died
    WORK/history/flow-NAME.jsonl    batches, looks at the log that found nothing, starts, failures
A line is appended by one write, so kill -9 tears at most the last one; a torn line is skipped by readers, and the next
writer begins on a line of its own. When a file has too many lines, neighbouring samples become one: what is old gets
coarse, sums and peaks stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

SAMPLES_MAX: Final = 2000
MARKS_MAX: Final = 400
TEXT_MAX: Final = 500


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="sample", tag_field="is"):
    """One batch, or several that were made one; with no batch, a look at the log that found nothing new."""

    since_ms: int
    at_ms: int  # when the last of its batches was done
    batches: int = 1
    rows: int = 0
    busy_ms: int = 0  # of all its batches
    longest_ms: int = 0
    lag_records: int | None = None  # the most of it
    lag_ms: int | None = None  # the most of it
    watermark_ms: int | None = None
    totals: dict[str, int] = {}  # what the flow has counted in its life, such as late rows


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="mark", tag_field="is"):
    at_ms: int
    what: str  # of a flow: started, failed, given up, stopped, done; of a run: started, ended, died
    text: str = ""


Line = Sample | Mark
_DECODER: Final = msgspec.json.Decoder(Line)


def joined(first: Sample, second: Sample) -> Sample:
    return Sample(
        since_ms=first.since_ms,
        at_ms=second.at_ms,
        batches=first.batches + second.batches,
        rows=first.rows + second.rows,
        busy_ms=first.busy_ms + second.busy_ms,
        longest_ms=max(first.longest_ms, second.longest_ms),
        lag_records=_most(first.lag_records, second.lag_records),
        lag_ms=_most(first.lag_ms, second.lag_ms),
        watermark_ms=first.watermark_ms if second.watermark_ms is None else second.watermark_ms,
        totals={**first.totals, **second.totals},
    )


def thinned(lines: Sequence[Line], marks_max: int = MARKS_MAX) -> list[Line]:
    """Pairs of neighbouring samples as one, unless a mark stands between them; the newest marks."""
    marks = sum(isinstance(line, Mark) for line in lines)
    kept: list[Line] = []
    waiting: Sample | None = None
    for line in lines:
        if isinstance(line, Mark):
            marks -= 1
            if marks >= marks_max:
                continue
            kept += [line] if waiting is None else [waiting, line]
            waiting = None
        elif waiting is None:
            waiting = line
        else:
            kept.append(joined(waiting, line))
            waiting = None
    return kept if waiting is None else [*kept, waiting]


def read_history(path: Path) -> list[Line]:
    """In the order of writing. Lines that are torn or of another version are left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return list(_decoded(content.split(b"\n")))


def _decoded(lines: Iterable[bytes]) -> Iterable[Line]:
    for line in lines:
        try:
            yield _DECODER.decode(line)
        except msgspec.DecodeError:
            continue


REPROCESSED: Final = "reprocessed"
"""The mark of a flow whose tables were swapped for rebuilt ones."""


class History:
    """The writer of one file."""

    def __init__(self, path: Path, *, samples_max: int = SAMPLES_MAX, marks_max: int = MARKS_MAX) -> None:
        # After a thinning there is room again: as many samples as there are marks may have found no partner.
        assert samples_max > 2 * marks_max + 2
        self._path = path
        self._samples_max, self._marks_max = samples_max, marks_max
        path.parent.mkdir(parents=True, exist_ok=True)
        found = read_history(path)
        self._samples = sum(isinstance(line, Sample) for line in found)
        self._marks = len(found) - self._samples
        self._file = path.open("ab", buffering=0)
        self._torn = path.stat().st_size > 0 and not _ends_a_line(path)

    def add(self, line: Line) -> None:
        """OSError when the disk does not take it; the next one may be taken again."""
        self._append(msgspec.json.encode(line) + b"\n")
        if isinstance(line, Sample):
            self._samples += 1
        else:
            self._marks += 1
        if self._samples > self._samples_max or self._marks > 2 * self._marks_max:
            self._thin()

    def close(self) -> None:
        self._file.close()

    def _append(self, content: bytes) -> None:
        whole = (b"\n" if self._torn else b"") + content
        self._torn = True  # until all of it is there
        if self._file.write(whole) != len(whole):
            raise OSError(f"{self._path}: only a part of a line was written")
        self._torn = False

    def _thin(self) -> None:
        lines = thinned(read_history(self._path), self._marks_max)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        os.replace(fresh, self._path)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)
        self._samples = sum(isinstance(line, Sample) for line in lines)
        self._marks = len(lines) - self._samples


def flow_file(work: Path, flow: str) -> Path:
    return work / "history" / f"flow-{flow}.jsonl"


def run_file(work: Path) -> Path:
    return work / "history" / "run.jsonl"


def _most(first: int | None, second: int | None) -> int | None:
    return max((one for one in (first, second) if one is not None), default=None)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
