"""Placement policy after Marconi. Imports nothing by itself; the plugin module is the entry point."""
