"""Tells PyInstaller to include the modules that ``mintlify_async`` loads on their first use."""

from mintlify_async.contrib.pyinstaller import module_names

hiddenimports = module_names()
