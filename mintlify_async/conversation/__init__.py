"""History, thread and turn of a conversation are committed together or not at all."""
