"""Where time comes from. Nothing else in ninfer reads a clock; tests have `ninfer.testing.FakeClock`."""

import time


class SystemClock:
    """The system's clocks. The calls themselves, without a layer around them: plugins are timed at every call."""

    monotonic_s = staticmethod(time.monotonic)
    """Seconds on a clock that never goes back."""
    unix_s = staticmethod(time.time)
    """Seconds since 1970-01-01 UTC."""
