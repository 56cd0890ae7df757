"""A tree from a YAML document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from tidelog.spark.pipeline.faults import Fault, Path, PipelineError
from tidelog.spark.pipeline.tree import Planter, Text, Value

# Far more than a pipeline has: by anchors a short document nests in itself, or doubles itself again and again.
DEPTH_MAX: Final = 20
NODES_MAX: Final = 20_000
_NULL: Final = "tag:yaml.org,2002:null"


def plant_yaml(text: str | bytes, environ: Mapping[str, str], source: str) -> tuple[Value, list[Fault]]:
    planter = Planter(environ)
    return _Yaml(planter).plant(_compose(text, source), ()), planter.faults


def _compose(text: str | bytes, source: str) -> Any:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise PipelineError([Fault((), "it nests too deeply")], source) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise PipelineError([Fault((), f"not YAML: {said}", mark.line + 1 if mark else None)], source) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise PipelineError([Fault((), f"not YAML: {' '.join(str(error).split())}")], source) from None
    if root is None:
        raise PipelineError([Fault((), "it is empty; `tidelog pipeline init` writes an example")], source)
    return root


class _Yaml:
    def __init__(self, planter: Planter) -> None:
        self._planter = planter
        self._nodes = 0

    def plant(self, node: Any, path: Path) -> Value:
        line = node.start_mark.line + 1
        self._nodes += 1
        if len(path) > DEPTH_MAX or self._nodes > NODES_MAX:
            if self._nodes <= NODES_MAX + 1:
                self._planter.faults.append(Fault(path[:3], "it nests too deeply, or has too many parts", line))
            return Text("", "", line, null=True)
        if isinstance(node, yaml.ScalarNode):
            return self._planter.text(node.value, line, path, null=node.tag == _NULL)
        if isinstance(node, yaml.SequenceNode):
            return self._planter.items(node.value, line, path, self.plant)
        return self._planter.keys([self._entry(key, value, path) for key, value in node.value], line, path, self.plant)

    def _entry(self, key: Any, value: Any, path: Path) -> tuple[str, Any, int]:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode):
            return key.value, value, line
        self._planter.faults.append(Fault(path, "a key must be a name", line))
        return f"?{line}", value, line
