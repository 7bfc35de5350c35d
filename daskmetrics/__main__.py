"""``python -m daskmetrics``."""

from daskmetrics.cli import main

if __name__ == "__main__":  # workers are spawned from here and must not run it again
    main(prog_name="python -m daskmetrics")
