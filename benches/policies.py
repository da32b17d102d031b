#!/usr/bin/env python3
"""Hits and moved rows of every policy on the traces of the data folder, as benches/results/README.md has them: one CSV of what `hotrow simulate`
counts. With a second command, one that was built at an older commit, LRU and LFU are played by it, too."""

import argparse, csv, subprocess, tempfile
from pathlib import Path

TRACES = "cache2k_orm_busy cache2k_orm_night diabetes130_fields ebooks_words goemotions_words online_retail_stock wikitext2_bigrams wikitext2_words".split()
SIZES = {1: "1,2,5,10,20", 2048: "1,2,5,10,20", 16384: "5"}
COLUMNS = "sets_by trace policy window_ways batch cache_percent slots accesses hits hit_rate unique unique_misses admitted evictions moved_bytes gap_closed_share".split()
# A row of 64 weights in INT8 and its scale and bias. Admitted rows come in, and evicted ones go out, as if all were changed.
RECORD = 72


def play(command, sets_by, options, batch, sizes, found):
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        line = [command, "simulate", "--trace", ",".join(TRACES), "--batch", str(batch), "--cache-percent", sizes, "--csv", file.name, *options]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        for row in csv.DictReader(open(file.name)):
            for share in [name for name in ["hit_rate", "gap_closed_share"] if row.get(name)]:
                row[share] = f"{float(row[share]):.6f}"
            moved = RECORD * (int(row["admitted"]) + int(row["evictions"]))
            found.append([{**row, "sets_by": sets_by, "moved_bytes": moved}.get(name, "") for name in COLUMNS])


args = argparse.ArgumentParser(description=__doc__)
args.add_argument("out", type=Path, help="folder for policies.csv and the plots")
args.add_argument("--hotrow", default="target/release/hotrow", help="the command")
args.add_argument("--before", help="the command as it was built at an older commit")
args = args.parse_args()
args.out.mkdir(parents=True, exist_ok=True)
found = []
for batch, sizes in SIZES.items():
    if args.before:
        play(args.before, "remainder", ["--policy", "lru,lfu"], batch, sizes, found)
    play(args.hotrow, "product", ["--policy", "lru,lfu,window,best", "--window-ways", "4,0"], batch, sizes, found)
    if "," in sizes:
        options = ["--policy", "lru,lfu,window,best", "--plot", str(args.out / f"batch-{batch}")]
        play(args.hotrow, "", options, batch, sizes, [])
with open(args.out / "policies.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([COLUMNS, *found])
