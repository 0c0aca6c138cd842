"""Tiles are used only where numba compiles for them: code for a tile that LLVM does not know ends the process."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")


def test_a_processor_named_by_the_user_has_no_tiles():
    code = "from ninfer.kernels.compiled.tile_attention import has_tiles; print(has_tiles())"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "False"
