"""The process of a worker that a command starts: ``dask worker``, with a folder of its own for
temporary files.
"""

import os
import sys

import dask
from distributed.cli.dask_worker import main

from daskmetrics.cluster._dask_config import TEMPORARY, temporary_settings
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import temporary_variables

if __name__ == "__main__":  # its workers are spawned from here and must not run it again
    try:
        with temporary_settings() as settings, dask.config.set(settings):
            os.environ.update(temporary_variables(settings[TEMPORARY]))
            main(prog_name="dask worker")
    except ConfigError as error:
        sys.exit(str(error))
