"""What a store says about itself to people: which model it belongs to. Part of no identity; loss costs a name only."""

import contextlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ninfer_storage_disk.files import Files

_log = logging.getLogger(__name__)

ABOUT: Final = "about.json"
MAX_ABOUT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class About:
    """What is written down.

    Attributes:
        model_name: for people.
        page_image_bytes: payload length of a full page image, 0 if unknown.
    """

    model_name: str = ""
    page_image_bytes: int = 0


NOTHING_KNOWN: Final = About()


def read_about(folder: Path) -> About:
    """Return what a store says about itself; nothing if the file is missing or damaged."""
    try:
        with (folder / ABOUT).open("rb") as file:
            content = json.loads(file.read(MAX_ABOUT_BYTES))
        return About(str(content["model_name"]), int(content["page_image_bytes"]))
    except (OSError, ValueError, TypeError, KeyError):
        return NOTHING_KNOWN


def write_about(files: Files, folder: Path, about: About) -> None:
    """Write it beside and rename it there, if it is not there already. A failure is logged and costs the name."""
    content = json.dumps(asdict(about)).encode()
    if read_about(folder) == about or len(content) > MAX_ABOUT_BYTES:
        return
    beside = folder / (ABOUT + ".new")
    try:
        handle = files.open(beside, is_new=True)
        try:
            files.write_at(handle, memoryview(content), 0)
        finally:
            files.close(handle)
        files.replace(beside, folder / ABOUT)
    except OSError as error:
        _log.warning("disk_about_failed path=%s error=%s", folder, error)
        with contextlib.suppress(OSError):
            files.unlink(beside)
