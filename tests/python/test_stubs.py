"""Compares the declared types of the package with its code: those of the extension module are in a separate file."""

import importlib.metadata
import pathlib
import subprocess
import sys

import firndb


def test_the_stubs_say_what_is_there(tmp_path):
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nignore_missing_imports = True\n")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "firndb._firndb", "--ignore-disjoint-bases", "--mypy-config-file", config],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_programs_can_be_checked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import firndb\n"
        "with firndb.connect('x', autocommit=True, timezone='UTC') as connection:\n"
        "    rows: list[tuple[object, ...]] = connection.execute('SELECT ?', (1,)).fetchall()\n"
        "    total: int = connection.retry(lambda c: c.execute('DELETE FROM t').rowcount)\n"
        "    connection.execute(1)  # wrong\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    errors = [line for line in ran.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1 and ":5:" in errors[0], ran.stdout + ran.stderr


def test_the_wheel_is_what_is_tested():
    """The installed package, not the sources."""
    package = pathlib.Path(firndb.__file__).parent
    assert "site-packages" in package.parts
    assert (package / "py.typed").exists() and (package / "_firndb.pyi").exists()
    assert importlib.metadata.version("firndb") == firndb.__version__
