"""What is loaded and when: nothing heavy by an import, one compilation per machine, plain Python without numba."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[4] / "src"

_DECODE = """
import sys
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.records import decode
print(decode(build_batch([RecordInput(b"k", b"v", 1)])).twin, *sorted({"numpy", "numba", "pyarrow"} & set(sys.modules)))
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_import_loads_nothing_heavy() -> None:
    heavy = "print(sorted({'numpy', 'numba', 'pyarrow'} & set(sys.modules)))"
    for module in ("tidelog.protocol.records", "tidelog.cli.main", "tidelog.node.node"):
        assert run(f"import sys, {module}\n{heavy}") == "[]"


def test_the_first_call_loads_numba_and_no_arrow() -> None:
    assert run(_DECODE) == "native numba numpy"


def test_without_numba_it_is_plain_python() -> None:
    """Hidden as if it were not installed."""
    hide = """
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
"""
    assert run(hide + _DECODE) == "pure"


def test_a_numba_that_does_not_load_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs another NumPy')")
    done = subprocess.run(
        [sys.executable, "-c", _DECODE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SRC}"},
    )
    assert done.stdout.split()[0] == "pure"
    assert done.stderr.count("Numba needs another NumPy") == 1


def test_compiled_once(tmp_path: Path) -> None:
    """The second process finds what the first has compiled."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    count = (
        "from tidelog.protocol.records import kernels_scan as k\nprint(sum(k.count_batches.stats.cache_hits.values()))"
    )
    assert run(count, **cache) == "0"
    made = sorted(path.name for path in tmp_path.rglob("*.nbc"))
    assert any("count_batches" in name for name in made)
    assert run(count, **cache) == "1"
    assert sorted(path.name for path in tmp_path.rglob("*.nbc")) == made


def test_no_place_for_the_cache_costs_time_only(tmp_path: Path) -> None:
    """A read-only container without a home: numba refuses to cache, the decoder compiles for itself."""
    refuse = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
from tidelog.protocol.records import kernels_scan
from tidelog.protocol.records.compiling import as_bytes
print(kernels_scan.count_batches(as_bytes(memoryview(b""))))
"""
    assert run(refuse, NUMBA_CACHE_DIR=str(tmp_path)) == "(0, 0, 0)"
