#!/usr/bin/env python3
"""Draws logical bandwidth against hit rate from what `hotrow bench --json FILE` wrote.

    pip install matplotlib
    hotrow bench --json bench.json
    python bandwidth.py bench.json bandwidth.svg
"""

import json
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main(source, picture):
    with open(source, encoding="utf-8") as file:
        found = json.load(file)
    panels = defaultdict(lambda: defaultdict(list))
    for record in found["records"]:
        call, _, kind = record["what"].partition(" ")
        if kind == "logical" and record["setting"].get("kind") == "cached":
            panels[record["shape"], call][record["setting"]["curve"]].append((record["setting"]["hits"], record["value"] / 1e9))
    if not panels:
        sys.exit(f"{source}: wanted the figures of cached tables, found none; run `hotrow bench --json FILE`")
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6.5 * len(panels), 5), squeeze=False, layout="constrained")
    for axis, ((shape, call), curves) in zip(axes[0], panels.items()):
        for curve, points in curves.items():
            axis.plot(*zip(*sorted(points)), marker="o", markersize=3, label=curve)
        axis.set(title=f"{call}, {shape}", xlabel="hit rate, %", ylabel="logical bandwidth, GB/s", ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    machines = "; ".join(machine["adapter"] for machine in found["machines"])
    figure.suptitle(f"{machines}, {found['date'][:10]}, commit {found['commit'][:8]}")
    figure.savefig(picture)
    print(picture)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "bandwidth.svg")
