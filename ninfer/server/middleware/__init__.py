"""What happens to every HTTP request before and after its endpoint, as pure ASGI. Knows nothing about endpoints."""
