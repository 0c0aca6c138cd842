"""Only instructions that numba compiles for are used: code that LLVM does not know for a processor ends the process."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")


def unit_of(name, features):
    code = "from ninfer.kernels.compiled.matrix_unit import matrix_unit; print(matrix_unit())"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


@pytest.mark.parametrize(
    ("features", "unit"),
    [
        ("", "None"),
        ("+avx2,+fma", "None"),
        ("+avx512f", "None"),
        ("+avx512f,+avx512dq", "avx512"),
        ("+avx512f,+avx512dq,-avx512bf16,-amx-tile,-amx-bf16", "avx512"),
        ("+avx512f,+avx512dq,+avx512bf16,+amx-tile,-amx-bf16", "avx512_bf16"),
    ],
)
def test_a_processor_named_by_the_user_is_used_for_what_it_has(features, unit):
    assert unit_of("generic", features) == unit
