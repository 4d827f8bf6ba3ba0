"""The values of the service's interface: frozen, read from JSON and written to it. No I/O."""
