"""Import txlake's code from its archive in a Python process of Spark's that has no txlake.

The nested functions here are pickled by value, so they refer to plain values only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from txlake.spark.shipping import Package


def module_loader(package: Package, *, carries: bool = False) -> Callable[[str], Any]:
    """Return a function that imports a module of the package by its name.

    It also works in a process without txlake. Some processes beside Spark's driver don't get the
    files that were sent to Spark. They find the archive where it was made, as long as the process
    that made it lives. On a Spark Connect server, which may be another machine and outlives its
    clients, the archive's bytes have to be carried along (`carries`).
    """
    name, archive = package.name, package.archive
    install = _installing(name, Path(archive).read_bytes()) if carries else None

    # Refers to plain values only, so that it can be pickled by value.
    def module(module_name: str) -> Any:  # noqa: ANN401 - the caller knows the module
        """Import a module of the package; first make the package importable if it isn't."""
        import sys
        from importlib import import_module
        from importlib.util import find_spec

        if find_spec(name) is None:
            if install is None:
                sys.path.insert(0, archive)
            else:
                install()
        return import_module(f"{name}.{module_name}")

    return module


def _installing(name: str, data: bytes) -> Callable[[], None]:
    """Return a function that makes a package importable from its archive's bytes, without a file.

    Python imports from archives that are files. Spark's processes are usually killed, so nobody
    would remove a file of theirs.
    """

    # Pickled by value too.
    def install() -> None:
        """Add a finder of the package's modules to this process's import system."""
        import importlib.util
        import io
        import marshal
        import sys
        from importlib.abc import InspectLoader
        from zipfile import ZipFile

        archive = ZipFile(io.BytesIO(data))
        files = frozenset(archive.namelist())

        class Archive(InspectLoader):
            def find_spec(self, fullname: str, path: object, target: object = None) -> Any:  # noqa: ANN401
                """Return the spec of a module of the archive; None for any other module."""
                file = self.file_of(fullname)
                if file not in files:
                    return None
                spec = importlib.util.spec_from_loader(fullname, self, origin=f"{name}.zip/{file}")
                assert spec is not None
                spec.has_location = True
                return spec

            def file_of(self, fullname: str) -> str:
                place = fullname.replace(".", "/")
                return f"{place}/__init__.py" if self.is_package(fullname) else f"{place}.py"

            def is_package(self, fullname: str) -> bool:
                return f"{fullname.replace('.', '/')}/__init__.py" in files

            def get_source(self, fullname: str) -> str:
                return archive.read(self.file_of(fullname)).decode()

            def get_code(self, fullname: str) -> Any:  # noqa: ANN401
                """Return the stored bytecode if this Python made it, else compile the source."""
                compiled = f"{self.file_of(fullname)}c"
                compiled_code = archive.read(compiled) if compiled in files else b""
                if compiled_code[:4] == importlib.util.MAGIC_NUMBER:
                    return marshal.loads(compiled_code[16:])
                return self.source_to_code(self.get_source(fullname), compiled[:-1])

        sys.meta_path.append(Archive())

    return install
