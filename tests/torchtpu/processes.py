"""Fresh Python processes for tests of what happens at import, at first use and after a fork."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300


def run_module(*arguments, **environment):
    """``python -m ...`` with no torchtpu variable set but those given; the completed process."""
    return _run(["-m", *arguments], environment)


def run_script(script, **environment):
    """Run a script (indented text) in the same way."""
    return _run(["-c", textwrap.dedent(script)], environment)


def _run(arguments, environment):
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TORCHTPU_", "XRT_", "JAX_", "TPU_"))
    }
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env=inherited | environment,
        check=False,
    )
