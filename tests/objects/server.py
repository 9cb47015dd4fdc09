#!/usr/bin/env python3
"""A server of S3's protocol for tests: moto, which keeps its objects in memory.

    server.py VENV

VENV is a Python environment with the packages of requirements.txt; it is created if it is missing. The server has one bucket,
`backups`. It listens on a free port of the loopback interface, which it prints, and ends when its input does.
"""

import pathlib
import subprocess
import sys
import urllib.request

REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "requirements.txt"


def main():
    venv = pathlib.Path(sys.argv[1])
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        return again_with_moto(venv)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    bucket = urllib.request.Request(f"http://{host}:{port}/backups", method="PUT")
    urllib.request.urlopen(bucket).close()
    print(f"{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()
    return 0


def again_with_moto(venv):
    """Runs this program in an environment that has moto."""
    python, ready = venv / "bin" / "python", venv / "ready"
    wanted = REQUIREMENTS.read_text()
    if not ready.exists() or ready.read_text() != wanted:
        steps = [
            [sys.executable, "-m", "venv", "--clear", str(venv)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", str(REQUIREMENTS)],
        ]
        for step in steps:
            # An index may fail once.
            if subprocess.run(step).returncode != 0 and subprocess.run(step).returncode != 0:
                return 1
        ready.write_text(wanted)
    if subprocess.run([str(python), "-c", "import moto.server"]).returncode != 0:
        return 1
    return subprocess.run([str(python), __file__, *sys.argv[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
