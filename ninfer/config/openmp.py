"""How threads of the tensor library wait for each other. Imports nothing of it: its OpenMP runtime reads this once, when loaded."""

import os
from collections.abc import MutableMapping
from typing import Final

_SPINS: Final = "1000"
"""Some microseconds. The default of GNU OpenMP is milliseconds, in which a waiting thread keeps its core from the one it waits
for as soon as something else runs on the machine: with two other busy processes on two cores that made prefill 14 to 60
times slower. Alone on the machine the two are equally fast (docs/performance.md)."""


def wait_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let threads that wait sleep soon, unless the user says how they should wait.

    Args:
        environment: of the process. Changes: `GOMP_SPINCOUNT`, which other OpenMP runtimes do not read.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", _SPINS)
