"""Bugs that a run must catch, planted in every Python process that it starts (tests/planting.py). None is shipped.

Modules are changed when they are imported and not before: a planner that had to load them first would come too late.
"""

from __future__ import annotations

from typing import Final

HOOK: Final = """
import importlib.abc, importlib.machinery, sys


class _Planter(importlib.abc.MetaPathFinder):
    def __init__(self, name, change):
        self.name, self.change = name, change

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (run(module), self.change(module))
        return spec


def plant(name):
    return lambda change: sys.meta_path.insert(0, _Planter(name, change))
"""

PLANTS: Final = {
    "forgetful-table": HOOK
    + '''
@plant("tidelog.spark.lake.delta")
def forget(module):
    """Delta's append does not look whether the batch is there, nor does its commit leave a mark."""
    commit = module.DeltaStore.commit
    module.DeltaStore.last_batch = lambda self, query: None
    module.DeltaStore.commit = lambda self, files, query, batch: commit(self, files, f"{query}-{files[0].path}", batch)
''',
    "lost-commit": HOOK
    + '''
@plant("tidelog.spark.lake.parquet")
def lose(module):
    """Every third commit of the Parquet table says that it is done and is not: Spark's checkpoint is ahead of it."""
    commit = module.ParquetStore.commit
    module.ParquetStore.commit = lambda self, files, query, batch: batch % 3 == 2 or commit(self, files, query, batch)
''',
    "skipped-chunk": HOOK
    + '''
@plant("tidelog.spark.source.rows")
def skip(module):
    """A task that is run again leaves out the first chunk of its stretch."""
    read = module.read

    def planted(task):
        from pyspark import TaskContext

        batches = read(task)
        if TaskContext.get().attemptNumber() > 0:
            next(batches, None)
        yield from batches

    module.read = planted
''',
}
