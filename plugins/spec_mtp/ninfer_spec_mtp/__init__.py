"""Multi-token-prediction decoder of ninfer. Imports nothing by itself; the plugin module is the entry point."""
