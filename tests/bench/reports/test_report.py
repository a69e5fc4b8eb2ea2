"""The report as a whole: command line, files, page."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest

from bench.record import Record, RunError
from bench.reports import ReportError, write
from bench.reports.__main__ import main
from bench.reports.frames import collect, sections
from bench.reports.html import render

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)> $\\frac{1}$ &amp; {{ 7*7 }}'
DAY = date(2026, 3, 2)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def no_tpu(saved, record_of, tmp_path: Path) -> Path:
    saved(record_of("tpu", step_s=4.8), "a")
    saved(record_of("cpu"), "b")
    return tmp_path / "runs"


def page_of(runs: Path, out: Path, **options: object) -> str:
    return write([runs], out, **options).read_text(encoding="utf-8")


def page_without_figures(runs: Path, today: date = DAY) -> str:
    """Drawing takes most of the time, and most tests look at the text."""
    found, broken = collect([runs])
    return render(found, broken, {key: [] for key in sections(found)}, today)


@pytest.fixture(scope="module")
def kept_runs(record_factory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tpu run without a TPU and a cpu run, for the tests that only read."""
    folder = tmp_path_factory.mktemp("kept")
    for device, step_s in (("tpu", 4.8), ("cpu", 4.4)):
        record_factory(device, step_s=step_s).save(folder / device / "record.json")
    return folder


@pytest.fixture(scope="module")
def page(kept_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(kept_runs, tmp_path_factory.mktemp("page"), today=DAY)


def test_it_writes_a_page_figures_and_a_csv(no_tpu: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert main([str(no_tpu), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out / "report.html")
    pngs = sorted(path.name for path in out.glob("*.png"))
    assert pngs == [
        f"bert_large-full-fp32-{kind}.png"
        for kind in ("loss", "parity", "phases", "steps", "throughput")
    ]
    for path in out.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert {"run", "metric", "value", "unit", "label", "method", "ci95_low"} <= set(rows[0])


def test_without_a_tpu_the_page_opens_with_it(page: str) -> None:
    assert "<h1>No TPU measured</h1>" in page
    assert "$" not in re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)


def test_the_page_fetches_nothing(page: str) -> None:
    assert "default-src 'none'" in page
    links = re.findall(r"""(?:src|href|action)\s*=\s*["']([^"']*)""", page)
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert "@import" not in page


def test_the_same_records_make_the_same_page(page: str, kept_runs: Path, tmp_path: Path) -> None:
    assert page_of(kept_runs, tmp_path, today=DAY) == page


def test_text_from_records_is_escaped_everywhere(saved, record_of, tmp_path: Path) -> None:
    record = record_of(
        "cpu",
        workload=EVIL,
        ran_on=EVIL,
        mode=EVIL,
        precision=EVIL,
        config={"key": EVIL, EVIL: 1},
        counters={"cpu_fallback_ops": {EVIL: 1}},
        software={EVIL: EVIL},
        host={EVIL: EVIL},
        facts={EVIL: EVIL},
        git_commit=EVIL,
        corpus_hash=EVIL,
    )
    record.warn(EVIL)
    record.add_metric("mean_dice", 0.5, "1", method=EVIL)
    saved(record, "a")
    failed = record_of("tpu", workload=EVIL, status="failed", error=RunError(EVIL, EVIL))
    saved(failed, "b")
    (saved(record_of("cpu"), "c") / "record.json").write_text(json.dumps({EVIL: 1}))
    page = page_of(tmp_path / "runs", tmp_path / "out")
    assert "alert" in page
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "49" not in re.findall(r"&amp;amp; (\S+)", page)
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)


def test_broken_records_are_listed_in_page_and_on_stderr(
    no_tpu: Path, tmp_path: Path, capsys
) -> None:
    broken = no_tpu / "broken"
    broken.mkdir()
    (broken / "record.json").write_text('{"schema_version": 1')
    page = page_of(no_tpu, tmp_path / "out")
    assert "1 record could not be read" in page
    assert "broken/record.json: truncated or not JSON" in page
    assert "broken/record.json: truncated" in capsys.readouterr().err


def test_a_failed_run_is_shown_with_its_error(no_tpu: Path, saved, record_of) -> None:
    failed = record_of("tpu", mode="fused", status="failed", error=RunError("OSError", "no disk"))
    saved(failed, "z")
    page = page_without_figures(no_tpu)
    assert "OSError: no disk" in page
    assert '<span class="tag failed">failed</span>' in page


def test_no_good_record_is_an_error(saved, record_of, tmp_path: Path, capsys) -> None:
    saved(Record(workload="w", device="cpu"), "killed")
    (saved(record_of("cpu"), "cut") / "record.json").write_text("{")
    assert main([str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "no good record" in message
    assert "killed/record.json is running" in message
    assert "cut/record.json cannot be read" in message
    assert not (tmp_path / "out").exists()


def test_bad_usage_is_one_line_and_exit_code_2(no_tpu: Path, tmp_path: Path, capsys) -> None:
    assert main([str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert main([str(no_tpu), "--out", str(blocked)]) == 2
    assert "cannot write the report" in capsys.readouterr().err
    for arguments in ([str(no_tpu)], [], ["--out", "x"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_write_raises_for_other_code(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such file"):
        write([tmp_path / "nowhere"], tmp_path)


def test_every_footnote_exists(page: str) -> None:
    used = set(re.findall(r'href="#(note-\d+)"', page))
    assert used
    assert used == set(re.findall(r'id="(note-\d+)"', page))
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_number_that_is_not_measured_shows_its_label(saved, record_of, tmp_path: Path) -> None:
    price = {"chips": ["TPU v5 lite"], "usd_per_chip_hour": 1.2, "as_of": "2026-01"}
    saved(record_of("tpu", platform="tpu", chip="TPU v5 lite", price=price), "a")
    page = page_without_figures(tmp_path / "runs", date(2026, 2, 1))
    assert '<span class="mark">measured + list price</span>' in page
    assert "Prices older than 90 days" not in page
    later = page_without_figures(tmp_path / "runs", date(2026, 9, 1))
    assert later.count("older than 90 days") == 1


def test_a_record_with_nothing_but_a_status_still_makes_a_page(saved, tmp_path: Path) -> None:
    record = Record(workload="w", device="cpu")
    record.finish("ok")
    saved(record, "a")
    assert "No TPU measured" in page_of(tmp_path / "runs", tmp_path / "out")


PROBE = """<!doctype html><body><script>
const page = %s, width = %d, found = {errors: []};
const frame = document.createElement("iframe");
frame.style.cssText = `border:0;height:900px;width:${width}px`;
frame.onload = () => {
  const doc = frame.contentDocument, root = doc.documentElement;
  found.overflow = root.scrollWidth - width;
  found.pictures = [...doc.querySelectorAll("figure svg")].map((p) => p.getBoundingClientRect())
    .filter((box) => box.width > 200 && box.height > 60 && box.right <= width).length;
  found.figures = doc.querySelectorAll("figure").length;
  const table = doc.querySelector("table.sortable");
  const order = () => [...table.tBodies[0].rows].map((row) => row.cells[0].firstChild.data.trim());
  const column = [...table.tHead.rows[0].cells].findIndex((c) => c.textContent.includes("median"));
  const button = table.tHead.rows[0].cells[column].querySelector("button");
  button.click(); found.up = order();
  button.click(); found.down = order();
  found.state = table.tHead.rows[0].cells[column].getAttribute("aria-sort");
  document.title = "done";
  document.body.textContent = "RESULT" + JSON.stringify(found) + "END";
};
frame.srcdoc = page;
document.body.append(frame);
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on PATH")
@pytest.mark.parametrize("width", [360, 1280])
def test_in_a_browser_it_fits_sorts_and_logs_no_error(
    page: str, tmp_path: Path, width: int
) -> None:
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE % (json.dumps(page).replace("</", "<\\/"), width), encoding="utf-8")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=5000",
        "--dump-dom",
        probe.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(re.search(r"RESULT(.*?)END", done.stdout)[1])
    assert found["overflow"] <= 0
    assert found["figures"] == found["pictures"] == 5
    assert found["up"] == ["cpu", "tpu on cpu"]
    assert found["down"] == ["tpu on cpu", "cpu"]
    assert found["state"] == "descending"
    assert "CONSOLE" not in done.stderr
