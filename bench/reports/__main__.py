"""`python -m bench.reports RUN_DIR... --out DIR`: exit code 0, or 2 with one line that says why."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from bench.reports import ReportError, write


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def main(arguments: list[str] | None = None) -> int:
    parser = _Parser(
        prog="python -m bench.reports",
        description="Turn run records into report.html, results.csv and PNG figures.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="RUN_DIR",
        help="a run directory, a folder that holds run directories, or a record.json",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where the report is written")
    options = parser.parse_args(arguments)
    try:
        report = write(options.paths, options.out)
    except ReportError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
