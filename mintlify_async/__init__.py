"""The asyncio client SDK for the Mintlify documentation service."""
