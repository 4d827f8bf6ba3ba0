"""asyncio and time: clocks, timers, cancellation, resources of a loop. No code about the service."""
