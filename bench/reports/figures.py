"""Figures from runs: each is one matplotlib figure, as SVG for the page and as PNG for a file.

In the SVG, text and axes take the page's own colours, so one figure serves light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.reports.formats import number, quantity, scale_of, words
from bench.reports.frames import Run, phase_order, step_samples, throughput

INK = "#1b1c1e"  # becomes currentColor in the SVG
LINE = "#d4d6da"  # becomes var(--line)
# Mid tones: they read on white and on near black.
_COLORS = {
    "tpu": ("#2f7fd1", "#63a4e6", "#1f5fa3"),
    "cuda": ("#3a9a5b", "#6dbd86", "#24733f"),
    "cpu": ("#8590a2", "#a9b2c0", "#667085"),
    "emulated": ("#c98a2b", "#dfae66", "#a06a17"),
}
_PHASE_COLORS = (
    "#8590a2",
    "#a9b2c0",
    "#5f9ea0",
    "#c98a2b",
    "#dfae66",
    "#7b6fc4",
    "#2f7fd1",
    "#3a9a5b",
)
_STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and restyled
    "svg.hashsalt": "bench",
    "text.parse_math": False,  # names come from records; a "$" is a dollar sign
    "font.size": 10.5,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "lines.linewidth": 1.8,
}
_WIDTH_IN = 5.2


@dataclass(frozen=True)
class Drawing:
    """`alt` says in words what the figure shows, for those who cannot see it."""

    key: str
    title: str
    note: str
    alt: str
    svg: str
    png: bytes


def drawings(runs: Sequence[Run]) -> list[Drawing]:
    """Every figure that the finished runs of one section have the data for."""
    runs = [run for run in runs if run.record.is_good]
    made = [
        maker(runs) for maker in (draw_throughput, draw_steps, draw_phases, draw_loss, draw_parity)
    ]
    return [drawing for drawing in made if drawing is not None]


def draw_throughput(runs: Sequence[Run]) -> Drawing | None:
    """Bars with 95 % intervals; an emulated TPU is hatched and named."""
    shown = [(r, throughput(r.record)) for r in runs if throughput(r.record)]
    # One axis has one unit: the first run's.
    shown = [(r, m) for r, m in shown if m.name == shown[0][1].name]
    if not shown:
        return None
    unit = shown[0][1].unit

    def paint(axes: Axes) -> None:
        for row, ((run, metric), color) in enumerate(
            zip(shown, _colors([run for run, _ in shown]), strict=True)
        ):
            bar = axes.barh(row, metric.value, color=color, height=0.58, linewidth=0)
            if run.record.is_emulated_tpu:
                bar[0].set(hatch="////", edgecolor="white")
            if metric.ci95:
                errors = [[metric.value - metric.ci95[0]], [metric.ci95[1] - metric.value]]
                errors = np.maximum(errors, 0)  # an interval need not hold the value
                axes.errorbar(metric.value, row, xerr=errors, color=INK, capsize=3, linewidth=1.2)
            end = max(metric.value, metric.ci95[1] if metric.ci95 else 0)
            axes.annotate(
                number(metric.value),
                (end, row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_yticks(range(len(shown)), [_short(run.name) for run, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)  # the first run on top
        axes.margins(x=0.16)
        axes.set_xlim(left=0)
        axes.set_xlabel(unit)
        axes.grid(axis="y", visible=False)

    emulated = any(run.record.is_emulated_tpu for run, _ in shown)
    note = "Higher is better. Whiskers: 95 % interval."
    if emulated:
        note += " Hatched: no TPU took part, not a TPU's speed."
    alt = "; ".join(f"{run.name}: {quantity(m.value, m.unit)}" for run, m in shown)
    return _drawing("throughput", "Throughput", note, alt, paint, 0.9 + 0.46 * len(shown))


def draw_steps(runs: Sequence[Run]) -> Drawing | None:
    """Every timed step in order: drift and outliers show."""
    shown = [(r, step_samples(r.record)) for r in runs if step_samples(r.record)]
    if not shown:
        return None
    longest_s = max(max(steps) for _, steps in shown)
    factor, unit = scale_of(longest_s, "s")
    # One slow run would press the others onto the axis.
    shortest_s = min(min(steps) for _, steps in shown)
    far_apart = 0 < shortest_s < longest_s / 8

    def paint(axes: Axes) -> None:
        for (run, steps), color in zip(shown, _colors([r for r, _ in shown]), strict=True):
            x = np.arange(1, len(steps) + 1)
            y = np.asarray(steps) / factor
            # A line through many thousand steps is only ink; dots thin out better.
            many = len(steps) > 200
            style = {"marker": ".", "markersize": 3 if many else 7, "alpha": 0.9}
            linestyle = "none" if many else "-"
            axes.plot(x, y, color=color, label=_short(run.name), linestyle=linestyle, **style)
        if far_apart:
            axes.set_yscale("log")
            # The default writes powers of ten as maths, which stays off for the sake of "$".
            axes.yaxis.set_major_formatter(lambda value, _: number(value, 1))
            axes.yaxis.set_minor_formatter(lambda value, _: "")
            axes.tick_params(which="minor", size=0)
        else:
            axes.set_ylim(0, 1.08 * longest_s / factor or 1)
        axes.set_xlabel("timed step")
        axes.set_ylabel(unit)
        _whole_ticks(axes)
        _legend(axes)

    alt = "; ".join(
        f"{run.name}: {len(steps)} steps, "
        f"{quantity(min(steps), 's')} to {quantity(max(steps), 's')}"
        for run, steps in shown
    )
    note = "Lower is better; a flat line is a settled run."
    if far_apart:
        note += " Logarithmic scale."
    return _drawing("steps", "Time of every timed step", note, alt, paint, 2.9)


def draw_phases(runs: Sequence[Run]) -> Drawing | None:
    """Where the wall clock of a whole run went."""
    shown = [run for run in runs if sum(run.record.phases.values()) > 0]
    if not shown:
        return None
    names = phase_order(shown)
    longest_s = max(sum(run.record.phases.values()) for run in shown)
    factor, unit = scale_of(longest_s, "s")

    def paint(axes: Axes) -> None:
        left = np.zeros(len(shown))
        for i, name in enumerate(names):
            seconds = np.array([run.record.phases.get(name, 0.0) for run in shown]) / factor
            axes.barh(
                range(len(shown)),
                seconds,
                left=left,
                height=0.58,
                color=_PHASE_COLORS[i % len(_PHASE_COLORS)],
                label=_short(words(name)),
            )
            left += seconds
        axes.set_yticks(range(len(shown)), [_short(run.name) for run in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)  # the first run on top
        axes.set_xlabel(unit)
        axes.grid(axis="y", visible=False)
        _legend(axes)

    alt = "; ".join(
        f"{run.name}: "
        + ", ".join(f"{words(n)} {quantity(s, 's')}" for n, s in run.record.phases.items())
        for run in shown
    )
    height = 1.5 + 0.46 * len(shown) + 0.2 * ((len(names) + 2) // 3)
    note = "Wall clock of the whole run; parity is not part of the timed steps."
    return _drawing("phases", "Where the time went", note, alt, paint, height)


def draw_loss(runs: Sequence[Run]) -> Drawing | None:
    """Losses of the timed runs, of one corpus only: other text gives another loss."""
    shown = [r for r in runs if sum(v is not None for v in r.record.loss_curve) > 1]
    shown = [r for r in shown if r.record.corpus_hash == shown[0].record.corpus_hash]
    if not shown:
        return None

    def paint(axes: Axes) -> None:
        for (run, color), dashes in zip(
            zip(shown, _colors(shown), strict=True), _dashes(len(shown)), strict=True
        ):
            y = np.array([np.nan if v is None else v for v in run.record.loss_curve])
            x = np.arange(1, len(y) + 1)
            axes.plot(x, y, color=color, linestyle=dashes, label=_short(run.name))
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        _whole_ticks(axes)
        _legend(axes)

    alt = "; ".join(
        f"{run.name}: {_ends([v for v in run.record.loss_curve if v is not None])}" for run in shown
    )
    note = "With dropout, so the curves need not meet; parity below is the test of equality."
    return _drawing("loss", "Loss while timed", note, alt, paint, 2.9)


def draw_parity(runs: Sequence[Run]) -> Drawing | None:
    """Losses of the untimed parity pass, device against CPU."""
    shown = [r for r in runs if _both_losses(r)]
    if not shown:
        return None

    def paint(axes: Axes) -> None:
        for run, color in zip(shown, _colors(shown), strict=True):
            device, reference = _both_losses(run)
            x = np.arange(1, len(device) + 1)
            axes.plot(x, reference, color=INK, linewidth=4, alpha=0.25)
            axes.plot(x, device, color=color, marker="o", markersize=4, label=_short(run.name))
        axes.plot([], [], color=INK, linewidth=4, alpha=0.25, label="CPU reference")
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        _whole_ticks(axes)
        _legend(axes)

    alt = "; ".join(
        f"{run.name}: device {_ends(_both_losses(run)[0])}, CPU {_ends(_both_losses(run)[1])}"
        for run in shown
    )
    note = "Same weights and batches, no dropout. The lines should lie on each other."
    return _drawing("parity", "Loss, device against CPU", note, alt, paint, 2.9)


def _both_losses(run: Run) -> tuple[list[float], list[float]] | None:
    parity = run.record.parity
    pairs = [
        (d, r)
        for d, r in zip(parity.device_losses, parity.reference_losses, strict=False)
        if d is not None and r is not None
    ]
    return ([d for d, _ in pairs], [r for _, r in pairs]) if pairs else None


def _ends(values: Sequence[float]) -> str:
    return f"{number(values[0])} to {number(values[-1])}"


def _short(text: str, limit: int = 26) -> str:
    """Text from a record on one line that cannot push the axes out of the figure."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _colors(runs: Sequence[Run]) -> list[str]:
    used: dict[str, int] = {}
    colors = []
    for run in runs:
        kind = "emulated" if run.record.is_emulated_tpu else run.record.hardware
        tones = _COLORS.get(kind, _COLORS["cpu"])
        colors.append(tones[used.get(kind, 0) % len(tones)])
        used[kind] = used.get(kind, 0) + 1
    return colors


def _dashes(count: int) -> list:
    return [("-", (0, (5, 2)), (0, (1, 1.5)))[i % 3] for i in range(count)]


def _whole_ticks(axes: Axes) -> None:
    axes.xaxis.get_major_locator().set_params(integer=True)


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(3, len(labels), 48 // (max(map(len, labels), default=1) + 5)))
    axes.legend(
        handles,
        # A label with a leading underscore would be dropped in silence.
        [label.lstrip("_") or "?" for label in labels],
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        handlelength=1.2,
        columnspacing=1.2,
        borderaxespad=0.2,
        fontsize=9.5,
    )


def _drawing(
    key: str, title: str, note: str, alt: str, paint: Callable[[Axes], None], height_in: float
) -> Drawing:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        paint(figure.add_subplot())
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once; each file would do it again
        text, image = io.StringIO(), io.BytesIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        figure.savefig(image, format="png", dpi=160)
    return Drawing(key, title, note, alt, _page_svg(text.getvalue()), image.getvalue())


def _page_svg(svg: str) -> str:
    """An SVG fit for a page: no prologue, no metadata, no fixed size, the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*(<metadata>.*?</metadata>|<!--.*?-->)", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # the same in every figure; ids are unique in a page
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
    return svg.replace(INK, "currentColor").replace(LINE, "var(--line)")
