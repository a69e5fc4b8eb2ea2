"""Records in; report.html, results.csv and PNG figures out. Nothing is measured here."""

from bench.reports.frames import ReportError
from bench.reports.html import write

__all__ = ["ReportError", "write"]
