"""Tells PyInstaller to include the modules of the commands. Each is loaded when its command runs."""

from mintlify_async.contrib.pyinstaller import module_names

hiddenimports = [*module_names("cli"), "readline"]
