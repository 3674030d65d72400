"""Files appear whole or not at all, with the permissions of any new file."""

import os
import stat
import threading

import pytest

from axil.errors import InputError
from axil.inputs import as_file, as_path
from axil.machine.atomic import atomic


def test_a_file_takes_its_name_at_the_end(tmp_path):
    path = tmp_path / "a"
    path.write_text("before")
    with atomic(path) as part:
        part.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_a_failure_keeps_what_was_there(error, tmp_path):
    path = tmp_path / "a"
    path.write_text("before")

    def write():
        with atomic(path) as part:
            part.write_text("half")
            raise error("No space left on device")

    with pytest.raises(InputError if error is OSError else error):
        write()
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a"]


def test_a_directory_is_replaced_and_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with atomic(tmp_path / "link") as part:
        part.mkdir()
        (part / "new").write_text("new")
    assert os.listdir(tmp_path / "real") == ["new"]
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_a_pipe_is_written_to(tmp_path):
    path, found = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_text()))
    reader.start()
    with atomic(path) as part:
        part.write_text("through")
    reader.join()
    assert found == ["through"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_permissions_follow_the_umask(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(
                os, "umask", None
            )  # is the whole process's: another thread's files would be open to all
            with atomic(tmp_path / "a") as part:
                part.write_text("text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


BAD = {
    "a number": 5,
    "nothing": None,
    "bytes": b"a",
    "empty": "",
    "a character of code 0": "a\0b",
    "too long": "a" * 5000,
    "a name too long": "a" * 300,
    "a list": ["a"],
}


@pytest.mark.parametrize("name", BAD)
def test_paths_that_cannot_be_used(name):
    for gate in (as_path, as_file):
        with pytest.raises(InputError, match="path is") as caught:
            gate(BAD[name])
        assert len(str(caught.value)) < 400


def test_files_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="a directory; expected the name of a file"):
        as_file(tmp_path)
    with pytest.raises(InputError, match="There is no directory"):
        as_file(tmp_path / "nowhere" / "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Not a directory"):
        as_file(tmp_path / "file" / "a")
