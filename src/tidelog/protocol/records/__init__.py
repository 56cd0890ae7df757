"""Record batches to columns and back, at native speed where the extra `fast` (numba) is installed.

    decode    the batches of a fetch answer or a segment to columns (columns.py), as Arrow by Columns.to_arrow
    scan      only the headers of the batches; decode_scanned goes on with some of them
    encode    columns to batches; from_arrow.py makes such columns of an Arrow batch

A twin in plain Python does the same without numba and passes the same tests. Importing this package loads neither
numpy nor numba; the first call does. The data plane of the broker uses neither: it looks at headers only (batch.py).
"""

from tidelog.protocol.records.columns import Batches, Column, Columns, TwinName
from tidelog.protocol.records.decoding import DECODE_LIMIT_BYTES, decode, decode_scanned, scan
from tidelog.protocol.records.encoding import encode
from tidelog.protocol.records.scratch import Scratch
from tidelog.protocol.records.twins import chosen_twin

__all__ = [
    "DECODE_LIMIT_BYTES",
    "Batches",
    "Column",
    "Columns",
    "Scratch",
    "TwinName",
    "chosen_twin",
    "decode",
    "decode_scanned",
    "encode",
    "scan",
]
