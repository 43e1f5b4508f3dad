"""``python -m cupydrive``: the command line."""

import sys

from cupydrive.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
