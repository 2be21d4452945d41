"""How much memory processes take over streams of requests, engine beside engine."""
