"""``python -m daskmetrics``."""

import sys

try:
    from daskmetrics.cli import main
except KeyboardInterrupt:
    print("Stopped before anything was started.", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":  # workers are spawned from here and must not run it again
    main(prog_name="python -m daskmetrics")
