"""For PyInstaller: the commands. Each is loaded when it runs."""

from mintlify_async.contrib.pyinstaller import module_names

hiddenimports = [*module_names("cli"), "readline"]
