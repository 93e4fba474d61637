"""Serving loads no torch: import-linter (`make check`) reads imports, this runs them."""

import subprocess
import sys


def test_the_service_and_its_commands_load_no_torch() -> None:
    code = "import sys, service.app, service.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
