"""From a validated body to tokens and back, for chat and completions alike. Knows nothing about answer formats."""
