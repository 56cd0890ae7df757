"""What processors can do and numba has no word for: eight bytes at once, a stretch of bytes at once, and CRC-32C by an
instruction. Nothing here checks an index: who calls it has.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from tidelog.protocol.records.compiling import helper

_BYTE: Final = ir.IntType(8)
_HALF: Final = ir.IntType(32)
_WORD: Final = ir.IntType(64)
_CRC_WORD: Final = "llvm.x86.sse42.crc32.64.64"
_CRC_BYTE: Final = "llvm.x86.sse42.crc32.32.8"
_ALL: Final = np.uint64(0xFFFFFFFF)


def _has_crc() -> bool:
    """Compiling an instruction that the processor lacks ends the process; as may one that numba was told not to use."""
    if config.CPU_NAME or config.CPU_FEATURES:
        return False
    return platform.machine().lower() in ("x86_64", "amd64") and bool(llvm.get_host_cpu_features().get("sse4.2"))


HAS_CRC: Final = _has_crc()


def _instruction(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


def _place(context: Any, builder: Any, kind: Any, array: Any, position: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _BYTE.as_pointer()), [position])


@_instruction
def word_at(typing: Any, data: Any, position: Any) -> Any:
    """Eight bytes as a number, in the processor's order."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(place, _WORD.as_pointer()), align=1)

    return types.uint64(data, types.int64), make


@_instruction
def copy_bytes(typing: Any, source: Any, start: Any, target: Any, at: Any, size: Any) -> Any:
    """So many bytes from one array to another one."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        read = _place(context, builder, kinds[0], arguments[0], arguments[1])
        write = _place(context, builder, kinds[2], arguments[2], arguments[3])
        cgutils.raw_memcpy(builder, write, read, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), make


@_instruction
def _crc_of_word(typing: Any, crc: Any, word: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD, _WORD])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, _CRC_WORD), arguments)

    return types.uint64(types.uint64, types.uint64), make


@_instruction
def _crc_of_byte(typing: Any, crc: Any, byte: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_HALF, [_HALF, _BYTE])
        function = cgutils.get_or_insert_function(builder.module, kind, _CRC_BYTE)
        given = [builder.trunc(arguments[0], _HALF), builder.trunc(arguments[1], _BYTE)]
        return builder.zext(builder.call(function, given), _WORD)

    return types.uint64(types.uint64, types.uint64), make


def _crc32c(data: Any, start: Any, end: Any) -> Any:
    """Of the bytes between two positions."""
    crc = _ALL
    at = start
    while at + 8 <= end:
        crc = _crc_of_word(crc, word_at(data, at))
        at += 8
    while at < end:
        crc = _crc_of_byte(crc, np.uint64(data[at]))
        at += 1
    return np.int64(crc ^ _ALL)


def _none(data: Any, start: Any, end: Any) -> Any:
    return np.int64(-1)


crc32c: Final = helper(_crc32c if HAS_CRC else _none)
"""For kernels; -1 where HAS_CRC is not set: the caller has to ask the package."""
