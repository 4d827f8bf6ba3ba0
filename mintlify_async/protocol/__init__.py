"""Makes requests from checked arguments, and reads responses and refusals. No I/O."""
