"""Files written whole, and the sentences for a disk that refuses them."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from kedro.io import DatasetError
from safetensors import SafetensorError

from starpo.app.datasets import JSONFileDataset, TableDataset
from starpo.app.mistakes import user_mistake
from starpo.errors import UserError
from starpo.store.durable import machine_fault, remove_unfinished, replacing, write_text
from starpo.store.schemas import SCORED


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*")]


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file"
    write_text(file, "old")
    with pytest.raises(RuntimeError), replacing(file) as temporary:
        temporary.write_text("half")
        assert file.read_text() == "old"
        raise RuntimeError
    assert file.read_text() == "old" and not hidden(tmp_path)
    write_text(file, "new")
    assert file.read_text() == "new" and not hidden(tmp_path)


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "policy_0001"
    for name in ("old", "new"):
        with replacing(folder) as temporary:
            (temporary / "learner").mkdir(parents=True)
            (temporary / "learner" / name).write_text(name)
    assert [path.name for path in (folder / "learner").iterdir()] == ["new"]
    with pytest.raises(KeyboardInterrupt), replacing(folder) as temporary:
        temporary.mkdir()
        raise KeyboardInterrupt
    assert (folder / "learner" / "new").exists() and not hidden(tmp_path)


def test_file_and_folder_are_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut finds what was synchronised, in this order; no test can cut the power."""
    events: list[str] = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: (
            events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{number}')).name}"),
            sync(number),
        ),
    )
    monkeypatch.setattr(os, "replace", lambda *names: (events.append("rename"), rename(*names)))
    with replacing(tmp_path / "policy") as temporary:
        temporary.mkdir()
        (temporary / "weights").write_text("1")
    assert events == ["sync weights", f"sync {temporary.name}", "rename", f"sync {tmp_path.name}"]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every temporary file is the device that is always full."""
    link = Path.with_name

    def to_full(self: Path, name: str) -> Path:
        path = link(self, name)
        if name.endswith(".tmp"):
            path.unlink(missing_ok=True)
            path.symlink_to("/dev/full")
        return path

    monkeypatch.setattr("starpo.store.durable._remove", lambda path: None)
    monkeypatch.setattr(Path, "with_name", to_full)
    yield


def test_a_full_disk_is_one_sentence_with_the_file_and_what_is_needed(tmp_path: Path, full: None) -> None:
    expected = (
        r"no space left on the disk \(.*MiB free\)\. What is written stays; make room, then the same command"
    )
    table = tmp_path / "data" / "03_scored" / "run" / "iter_0001.parquet"
    table.parent.mkdir(parents=True)
    for save in (
        lambda: TableDataset(filepath=str(table), table="scored").save(SCORED.empty_table()),
        lambda: JSONFileDataset(filepath=str(table)).save({"a": 1}),
        lambda: write_text(table, "x"),
    ):
        with pytest.raises((UserError, DatasetError)) as caught:
            save()
        sentence = user_mistake(caught.value)
        assert sentence is not None
        assert sentence.startswith(f"{table}: ") and re.search(expected, sentence)
    with (
        pytest.raises(UserError, match=r"at least 2\.0 MiB needed"),
        replacing(table, 2 * 2**20) as temporary,
    ):
        temporary.write_bytes(bytes(2**20))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.EROFS, "x", "/data/a"), "/data/a: Read-only file system. Make the folder writable"),
        (
            PermissionError(errno.EACCES, "x", "/data/a"),
            "/data/a: Permission denied. Make the folder writable",
        ),
        (OSError(errno.ENAMETOOLONG, "x", "/data/a"), "the file name is too long"),
        (OSError(errno.EDQUOT, "x", "/data/a"), "no space left"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "no space left"),
        (
            pa.ArrowException("Error writing bytes. Detail: [errno 28] No space left on device"),
            "no space left",
        ),
    ],
)
def test_what_a_person_can_mend_is_said_also_behind_other_errors(error: Exception, sentence: str) -> None:
    assert sentence in str(machine_fault(error))
    wrapped = RuntimeError("Failed while saving data")
    wrapped.__cause__ = error
    assert sentence in str(user_mistake(wrapped))


def test_other_errors_are_none_of_it(tmp_path: Path) -> None:
    assert machine_fault(OSError(errno.ECONNREFUSED, "refused")) is None
    assert machine_fault(ValueError("28 is no number of mine")) is None
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "file"):
        pass


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "run" / ".policy_0001.77.tmp" / "learner").mkdir(parents=True)
    (tmp_path / "run" / ".iter_0001.parquet.77.tmp").write_text("half")
    (tmp_path / "run" / "iter_0000.parquet").write_text(json.dumps({}))
    remove_unfinished(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["iter_0000.parquet"]
