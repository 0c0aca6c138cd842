"""Matcher that narrows by session key. Imports nothing by itself; the plugin module is the entry point."""
