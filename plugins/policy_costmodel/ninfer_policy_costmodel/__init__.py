"""Cost-model placement policy of ninfer. Imports nothing by itself; the plugin module is the entry point."""
