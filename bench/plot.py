"""The figure of the README. On a ground of its own, so that it can be read on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.measure import Report, percentiles

GROUND, INK, FAINT = "#f6f8fa", "#1f2328", "#8c959f"
OURS, LIMIT, THEIRS = "#0969da", "#1a7f37", ("#9a6700", "#8250df", "#57606a")


def draw(report: Report, facts: Mapping[str, str], path: Path) -> None:
    mpl.rcParams.update({"font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT})
    mpl.rcParams.update({"xtick.color": INK, "ytick.color": INK, "axes.facecolor": GROUND})
    figure = Figure(figsize=(11, 5.6), facecolor=GROUND, layout="constrained")
    places = figure.subplot_mosaic([["bars", "callers"], ["bars", "bytes"]], width_ratios=[1.5, 1])
    _bars(places["bars"], report)
    for place, (name, curves) in zip(("callers", "bytes"), report.curves.items(), strict=False):
        _curves(places[place], name, curves)
    about = (
        f"{facts['processor']}, {facts['cores']} cores, {facts['engine']}, {facts['storage']}, cgroup {facts['cgroup']}"
    )
    figure.suptitle(f"{facts['command']} in {facts['image']} · {about}", fontsize=9, color=INK)
    figure.savefig(path, dpi=160)


def _bars(axes: Axes, report: Report) -> None:
    """One bar a contender: as long as its median; a line to its p99."""
    times: dict[str, tuple[tuple[float, float, float], str]] = {}
    for row in report.rows:
        if row.name in {"cold request, answered", "warm request, answered", "recycled request, answered"}:
            ours = f"sandbox-provider, {row.name.split()[0]}"
            if row.ours:
                times[ours] = percentiles(row.ours), OURS
            if row.theirs:
                times.setdefault(row.peer, (percentiles(row.theirs), LIMIT if "host" in row.peer else FAINT))
    ranked = sorted(times.items(), key=lambda item: -item[1][0][0])
    for place, (_, ((p50, _, p99), colour)) in enumerate(ranked):
        axes.barh(place, p50, color=colour, height=0.66)
        axes.plot([p50, max(p50, p99)], [place, place], color=INK, linewidth=1)
        axes.text(max(p50, p99) * 1.12, place, f"{p50:.3g} ms", va="center", fontsize=9)
    axes.set_yticks(range(len(ranked)), [name for name, _ in ranked])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if ranked:
        axes.set_xlim(ranked[-1][1][0][0] / 2, ranked[0][1][0][2] * 4)
    axes.set_xlabel("one request in ms, p50 and a line to p99; log scale")
    _plain(axes)


def _curves(axes: Axes, name: str, curves: Mapping[str, list[tuple[float, float]]]) -> None:
    others = iter(THEIRS)
    for title, points in curves.items():
        colour = OURS if title == "sandbox-provider" else LIMIT if "host" in title else next(others)
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3, label=title)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(name)
    if "bytes" in name:
        axes.set_yscale("log")
        axes.set_ylim(bottom=min(value for points in curves.values() for _, value in points) / 8)
        axes.set_xticks([2**10, 2**15, 2**20, 2**25], ["1 KiB", "32 KiB", "1 MiB", "32 MiB"])
    else:
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(fontsize=7, frameon=False, labelcolor=INK, loc="lower left", ncols=2, handlelength=1, columnspacing=1)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#d0d7de", linewidth=0.6)
    axes.set_axisbelow(True)
