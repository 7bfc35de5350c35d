"""Description of the software and the machine that produced a result."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version


def environment(*packages: str) -> dict[str, str]:
    """Versions of Python and of packages, and the kind of machine."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: version(name) for name in packages},
    }
