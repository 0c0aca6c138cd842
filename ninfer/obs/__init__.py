"""What ninfer tells people about itself: logs, metrics, health. Knows nothing about requests or HTTP."""
