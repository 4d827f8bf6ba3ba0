"""Tells PyInstaller to include the modules of the testing kit, and the package's documentation pages."""

from mintlify_async.contrib.pyinstaller import module_names, pages

hiddenimports = [name for name in module_names("testing") if not name.endswith(".pytest_plugin")]
datas = pages()
