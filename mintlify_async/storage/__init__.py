"""What outlives a process: creation claims and conversations. Each step happens whole or not at all."""
