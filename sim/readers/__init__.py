"""Trace readers: common public formats, Starburst's CSV, generated workloads and recorded history."""

from sim.readers.fits import check_fits, on_cluster, spread
from sim.readers.formats import FORMATS, Read, TraceFormat, read
from sim.readers.history import from_records

__all__ = ["FORMATS", "Read", "TraceFormat", "check_fits", "from_records", "on_cluster", "read", "spread"]
