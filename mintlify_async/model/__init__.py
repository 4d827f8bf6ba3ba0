"""The values of the interface, frozen, read from and written to JSON. No I/O."""
