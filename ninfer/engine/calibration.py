"""What was measured of this machine with this model, kept in a file. Measures nothing itself."""

import json
import platform
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog
import torch

from ninfer.exec.calibrate import PrefillSpeed
from ninfer.kernels.linear import LinearPolicy

_log = structlog.get_logger(__name__)

_REVISION: Final = 2
"""Of how it is measured; files of another one are not read."""


class CalibrationFile:
    """Measurements of one machine, model and arithmetic.

    Args:
        folder: where such files live.
        subject: names model and arithmetic.
    """

    def __init__(self, folder: Path, subject: bytes) -> None:
        """Read what is there; an unreadable file counts as none."""
        machine = f"{platform.machine()} {platform.processor()} {torch.__version__} {torch.get_num_threads()}"
        name = sha256(f"{_REVISION} {machine}".encode() + subject).hexdigest()[:24]
        self._path = folder / f"calibration-{name}.json"
        self._values: dict[str, object] = {}
        try:
            loaded = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            loaded = None
        if isinstance(loaded, dict):
            self._values = loaded

    def linear_policy(self, measure: Callable[[], LinearPolicy]) -> LinearPolicy:
        """Return the kept choice of matrix kernels, or measure and keep it."""
        kept = self._values.get("linear_kernels")
        if isinstance(kept, dict):
            try:
                return LinearPolicy(**kept)
            except TypeError:
                _log.warning("calibration_unreadable", path=str(self._path))
        policy = measure()
        self._keep("linear_kernels", asdict(policy))
        return policy

    def prefill_speed(self, measure: Callable[[], PrefillSpeed]) -> PrefillSpeed:
        """Return the kept prefill speed, or measure and keep it."""
        try:
            return PrefillSpeed.from_json(json.dumps(self._values.get("prefill_speed")))
        except ValueError:
            speed = measure()
        self._keep("prefill_speed", json.loads(speed.to_json()))
        return speed

    def _keep(self, key: str, value: object) -> None:
        self._values[key] = value
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = self._path.with_suffix(".tmp")
            draft.write_text(json.dumps(self._values, indent=1), encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            _log.warning("calibration_not_kept", path=str(self._path), problem=str(error))
