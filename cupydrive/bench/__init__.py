"""Benchmarks of rollouts, single steps, sampling and training, and the limits of the device."""

from cupydrive.bench.benchmark import CASES, bench
from cupydrive.bench.cases import Work, measure
from cupydrive.bench.limits import Ceilings, ceilings
from cupydrive.bench.report import Bench
from cupydrive.bench.timing import Row, short

__all__ = ["CASES", "Bench", "Ceilings", "Row", "Work", "bench", "ceilings", "measure", "short"]
