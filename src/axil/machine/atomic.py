"""Files that take their name only once they are complete.

A full disk or an interrupt leaves the file that was there before.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from axil.errors import InputError


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a path to write a file or a directory to, which takes the place of ``path`` at the end.

    The new file is written inside a directory of its own beside the old one, so that it gets the
    permissions of any new file. Links are followed. A device or a pipe is written to directly,
    because it has nothing to replace.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not (place.is_file() or place.is_dir()):
        with _in_words(path):
            yield place
        return
    with _in_words(path):
        folder = Path(tempfile.mkdtemp(prefix=".axil-", suffix=".part", dir=place.parent))
        try:
            new_path = folder / "new"
            old_path = folder / "before"
            yield new_path
            if not place.is_dir():
                os.replace(new_path, place)
                return
            os.rename(place, old_path)  # a directory cannot be replaced in one step
            try:
                os.rename(new_path, place)
            except BaseException:
                os.rename(old_path, place)
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def whole(place: Path, text: str, only_new: bool = False) -> None:
    """Write a small file in one step, cheaper than `atomic`.

    With ``only_new``, a file that exists stays.
    Many threads and processes may write the same file at once: it is always one of theirs.
    """
    new_path = f"{place.parent}{os.sep}.{secrets.token_hex(8)}.part"
    with _in_words(place):
        try:
            with open(new_path, "xb", buffering=0) as file:
                file.write(text.encode("utf-8", "replace"))  # half a character is no reason to stop
            if not only_new:
                os.replace(new_path, place)
                return
            with suppress(FileExistsError):
                os.link(new_path, place)  # unlike a rename it fails where something is
            os.unlink(new_path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new_path)
            raise


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turn an error of the disk or of rights into an InputError that names the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise InputError(
            f"{path} cannot be written: {reason}. Choose another place; what was there before is "
            "unchanged."
        ) from error
