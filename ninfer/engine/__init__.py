"""The engine: one thread that owns scheduler, cache and runner, and the place where it is put together."""
