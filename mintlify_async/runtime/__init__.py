"""asyncio and time: clocks, timers, cancellation and per-loop resources. Nothing here knows the service."""
