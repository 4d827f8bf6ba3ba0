"""For PyInstaller: the modules that ``mintlify_async.testing`` loads on their first use, and the pages."""

from mintlify_async.contrib.pyinstaller import module_names, pages

hiddenimports = [name for name in module_names("testing") if not name.endswith(".pytest_plugin")]
datas = pages()
