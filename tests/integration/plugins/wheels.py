"""Tiny wheels, written by hand and installed with pip: what a third party's user has on disk."""

import base64
import hashlib
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def build_wheel(
    folder: Path,
    distribution: str,
    version: str,
    *,
    files: Mapping[str, str],
    entry_points: Mapping[str, str],
) -> Path:
    """Write one wheel.

    Args:
        folder: where to.
        distribution: name of the distribution.
        version: of it.
        files: text by path inside the wheel.
        entry_points: module by plugin name.
    """
    stem = f"{distribution.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    points = "".join(f"{name} = {module}\n" for name, module in entry_points.items())
    content = {path: textwrap.dedent(text) for path, text in files.items()}
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    )
    content[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    content[f"{info}/entry_points.txt"] = f"[ninfer]\n{points}"
    record = "".join(f"{path},{_digest(text)}\n" for path, text in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    encoded = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return f"sha256={encoded},{len(text.encode())}"


def install(wheels: Sequence[Path], target: Path) -> None:
    """Install wheels into a folder with pip, without an index and without dependencies."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-index", "--no-deps", "--no-compile", "--target", str(target)]
    done = subprocess.run(
        [*command, *map(str, wheels)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
