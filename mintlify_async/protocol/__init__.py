"""Rules of the service's interface. Every assumption about it is a field that can be overridden. No I/O."""
