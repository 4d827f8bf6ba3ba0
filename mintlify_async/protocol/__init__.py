"""What the service's interface says. Every assumption about it is a field that can be overridden. No I/O."""
