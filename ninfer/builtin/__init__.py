"""The plugin that comes with the core: like any other, it sees the contract only."""
