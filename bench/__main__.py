"""Command line of the benchmark: `python -m bench workload=NAME device=NAME [key=value ...]`.

Exit codes: 0 done; 1 the run failed; 2 wrong input or no such device; 130 interrupted.
"""

from __future__ import annotations

import shutil
import sys
import time

_STARTED_S = time.perf_counter()

HELP_FLAGS = ("-h", "--help", "help")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Imported here, so that the time counts as import time.
    from bench.options import UsageError

    try:
        return _main(arguments)
    except UsageError as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _main(arguments: list[str]) -> int:
    from bench import config as configuration
    from bench.options import UsageError, one_of

    flags = [a for a in arguments if a.startswith("-")]
    overrides = [a for a in arguments if not a.startswith("-")]
    if not arguments or any(a in HELP_FLAGS for a in arguments):
        print(configuration.help_text([a for a in overrides if a not in HELP_FLAGS]))
        return 0 if arguments else 2
    for flag in flags:
        if flag != "--cfg":
            raise UsageError(f"unknown option {flag}; {one_of(flag, ['--help', '--cfg'])}")
    config = configuration.load_config(overrides)

    from bench.plan import make_plan

    plan = make_plan(config)
    if flags:
        print(configuration.to_yaml(config), end="")
        return 0
    return _run(plan)


def _run(plan) -> int:
    from bench.interrupt import EXIT_CODE, Interrupted, interruptible
    from bench.options import UsageError
    from bench.plan import new_record, new_run_dir
    from bench.run import Runner
    from bench.terminal import ProgressBar, summary

    folder, made_here = new_run_dir(plan)
    record = new_record(plan)

    def give_up(signal_name: str) -> None:
        record.finish("interrupted", Interrupted(f"stopped by {signal_name}"))
        record.save(folder)
        where = folder / "record.json"
        print(f"bench: interrupted in the middle of a step; record: {where}", file=sys.stderr)

    try:
        with interruptible(give_up):
            record.save(folder)
            try:
                with ProgressBar(plan.report.progress) as progress:
                    runner = Runner(
                        plan,
                        record,
                        save=lambda: record.save(folder),
                        progress=progress,
                        started_s=_STARTED_S,
                    )
                    runner.run()
                record.finish("ok")
            except UsageError:
                raise
            except KeyboardInterrupt as error:
                record.finish("interrupted", error)
            except Exception as error:
                record.finish("failed", error)
                _show_traceback()
            record.save(folder)
    except UsageError:
        # Nothing was measured: wrong input leaves nothing behind.
        (folder / "record.json").unlink(missing_ok=True)
        if made_here:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if plan.report.summary:
        summary(record, str(folder / "record.json"))
    if record.status != "ok":
        print(
            f"bench: {record.status}: {record.error.type}: {record.error.message}", file=sys.stderr
        )
    return {"ok": 0, "interrupted": EXIT_CODE}.get(record.status, 1)


def _show_traceback() -> None:
    """For a failure of the program; one that is named in the record needs no stack."""
    import traceback

    from bench.meters.time import TimingError
    from bench.parity import ParityError
    from bench.run import NonFiniteLoss, WrongResult

    error = sys.exc_info()[1]
    if not isinstance(error, (TimingError, ParityError, NonFiniteLoss, WrongResult)):
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
