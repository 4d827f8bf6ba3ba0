"""The history, the thread and the turn of a conversation, which are saved together or not at all."""
