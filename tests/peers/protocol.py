"""What the programs of this folder share: their arguments, and how they tell what they have found."""

import argparse
import json
import sys
from dataclasses import asdict

ABSENT = 3  # as in cupydrive/bench/peers.py


def arguments(about):
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cases", nargs="+", default=["rollout", "stepping", "training"])
    return parser.parse_args()


def tell(row):
    """Print a ``Row`` as JSON."""
    print(json.dumps(asdict(row)), flush=True)


def absent(reason):
    """Say why there is nothing to time here, and leave."""
    print(reason, file=sys.stderr)
    sys.exit(ABSENT)
