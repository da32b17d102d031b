#!/usr/bin/env python3
"""The CPU backend beside torch and FBGEMM: nanoseconds a look-up, in alternating runs on this machine.

    pip install torch==2.9.1 fbgemm-gpu-cpu==1.4.2
    cargo bench --bench peers --no-run
    benches/peers.py [--out DIR] [--rounds 15] [--only TEXT,...] [--quick] [--data DIR]

`cargo bench --no-run` prints where the program lies; `--program FILE` names it if it is not the newest target/release/deps/peers-*.
Take this pair of versions: fbgemm-gpu-cpu 1.9.0 runs scalar reference kernels for row-wise AdaGrad and FP16. For each kind of cell this
script tries in a process of its own whether FBGEMM makes machine code, and notes it if not: then a reference kernel ran. A peer that is not
installed is left out, and the table says so. `--data` names a folder with the traces ebooks_words and diabetes130_fields; without it their
cells are left out.

`hotrow python` is hotrow through its package for Python (`pip install ./python`), with as many threads as RAYON_NUM_THREADS says, else as there are cores; it is left
out where --threads says another number.

What is not alike: `hotrow` is called from Rust and the peers from Python, which is most of a small call; hotrow writes outputs into the
caller's memory, the peers allocate them; indices have 32 bits in hotrow and 64 in the peers; hotrow asks for huge pages; FP16 is rounded
stochastically by hotrow and to nearest by the peers. The threads of all sides are bound to cores.
"""

import os

# Before torch starts its threads.
os.environ.setdefault("OMP_PROC_BIND", "close")
os.environ.setdefault("OMP_PLACES", "cores")

import argparse
import csv
import glob
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS, BAGS, POOLED, BATCHES = 1_000_000, 2048, 20, 6
OPTIMIZERS = ("sgd", "rowwise", "adagrad")
CORES = os.sched_getaffinity(0)  # before torch binds this thread to one of them


def cells(quick):
    """Name, what, law, dim, precision, optimiser, cache in percent."""
    found = []
    for law in ("uniform", "zipf", "ebooks_words", "diabetes130_fields"):
        for dim in (64, 128):
            for precision in ("fp32", "fp16"):
                found.append(("frozen", law, dim, precision, "sgd", 0))
                found.append(("forward", law, dim, precision, "sgd", 0))
                for optimizer in OPTIMIZERS if precision == "fp32" else ("rowwise",):
                    found.append(("step", law, dim, precision, optimizer, 0))
            found.append(("frozen", law, dim, "int8", "sgd", 0))
            if law != "uniform":
                found.append(("step", law, dim, "int8", "rowwise", 5))
                found.append(("step", law, dim, "int4", "rowwise", 10))
    found += [("small", "uniform", dim, "fp32", "sgd", 0) for dim in (64, 128)]
    return found[:: 7] if quick else found


def trace(folder, name):
    def words(file):
        packed = os.path.join(folder, file + ".zst")
        raw = subprocess.run(["zstd", "-dc", packed], check=True, stdout=subprocess.PIPE).stdout
        return struct.unpack(f"<{len(raw) // 4}I", raw)

    return words(f"{name}.u32"), words(f"{name}.offsets.u32")


def batches(np, law, data, small):
    """The rows of a table, and batches of (offsets, indices)."""
    random = np.random.default_rng(7)
    if law in ("uniform", "zipf"):
        n = POOLED if small else BAGS * POOLED
        made = []
        for _ in range(64 if small else BATCHES):
            if law == "uniform":
                indices = random.integers(0, ROWS, n)
            else:
                # Inverse of the distribution function of 1 / rank^1.05; hot rows lie anywhere in the table.
                weights = zipf_weights(np)
                indices = np.searchsorted(weights, random.random(n)) * 611_953 % ROWS
            made.append((np.arange(0, n + 1, POOLED), indices))
        return ROWS, made
    if data is None:
        return None
    indices, offsets = (np.array(part) for part in trace(data, law))
    made = []
    for k in range(BATCHES):
        part = offsets[k * BAGS : (k + 1) * BAGS + 1]
        made.append((part - part[0], indices[part[0] : part[-1]]))
    return int(indices.max()) + 1, made


def zipf_weights(np, kept={}):
    if not kept:
        weights = np.cumsum(np.arange(1, ROWS + 1) ** -1.05)
        kept["weights"] = weights / weights[-1]
    return kept["weights"]


class Hotrow:
    """benches/peers.rs."""

    def __init__(self, program, folder):
        environment = {**os.environ, "PEERS": "1"}
        self.child = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, CORES),
        )
        self.folder, self.files = folder, 0

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline().strip()
        if not answer:
            sys.exit(f"hotrow ended at: {line}")
        return answer

    def words(self, np, values):
        self.files += 1
        path = os.path.join(self.folder, f"{self.files}.u32")
        np.asarray(values, dtype="<u4").tofile(path)
        return path

    def table(self, np, rows, made, dim, precision, optimizer, cache, threads, policy="lfu"):
        self.ask(
            f"group t rows={rows} dim={dim} precision={precision} optimizer={optimizer} cache={rows * cache // 100} "
            f"policy={policy if cache else 'lru'} threads={threads}"
        )
        for offsets, indices in made:
            self.ask("batch t " + self.words(np, np.concatenate([[len(offsets) - 1], offsets, indices])))
        return lambda what: float(self.ask(f"run t {what} 1"))


def from_python(np, rows, made, dim, precision, optimizer, cache):
    """Hotrow as the peers are called; `None` without its package."""
    try:
        import hotrow
    except ImportError as error:
        print(f"left out: hotrow python: {error}", file=sys.stderr)
        return None
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CORES)  # its threads start in the first call
    rule = {"sgd": hotrow.SGD, "adagrad": hotrow.AdaGrad, "rowwise": hotrow.RowWiseAdaGrad}[optimizer](0.05)
    settings = dict(cache_rows=rows * cache // 100, policy="lfu" if cache else "lru", init=hotrow.Uniform(-0.1, 0.1), device="cpu")
    group = hotrow.Group([rows], dim, precision=precision, optimizer=rule, **settings)
    os.sched_setaffinity(0, bound)
    lookups = sum(len(i) for _, i in made)
    made = [(i.astype("u4"), o.astype("u4"), np.empty((len(o) - 1, dim), "f4"), gradients(np, len(o) - 1, dim)) for o, i in made]

    def run(what):
        total = 0
        for indices, offsets, out, grads in made:
            start = time.perf_counter_ns()
            (group.forward_frozen if what == "frozen" else group.forward)(indices, offsets, out=out)
            if what == "step":
                group.backward(grads)
            total += time.perf_counter_ns() - start
            if what == "forward":
                group.backward(grads)
        return total / lookups

    return run


def code_pages():
    """The bytes of executable memory that no file backs: machine code that a library made while it ran."""
    total = 0
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            fields = line.split()
            if "x" in fields[1] and (len(fields) < 6 or "/" not in fields[5] or "memfd" in fields[5]) and "[" not in line:
                start, end = (int(part, 16) for part in fields[0].split("-"))
                total += end - start
    return total


def torch_side(torch, made, rows, dim, precision, optimizer):
    dtype = {"fp32": torch.float32, "fp16": torch.float16}[precision]
    made = [(torch.tensor(o), torch.tensor(i)) for o, i in made]
    bag = torch.nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, include_last_offset=True, dtype=dtype)
    grads = [torch.randn(len(o) - 1, dim, dtype=dtype) for o, _ in made]
    rule = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}.get(optimizer)
    rule = rule(bag.parameters(), lr=0.05) if rule and precision == "fp32" else None
    lookups = sum(len(i) for _, i in made)

    def run(what):
        total = 0
        for (offsets, indices), grad in zip(made, grads):
            start = time.perf_counter_ns()
            if what == "frozen":
                with torch.no_grad():
                    bag(indices, offsets)
            else:
                out = bag(indices, offsets)
            if what == "step":
                out.backward(grad)
                rule.step()
                rule.zero_grad()
            total += time.perf_counter_ns() - start
            if what == "forward":
                out.backward(grad)  # all sides do the same work between two forwards
                bag.weight.grad = None
        return total / lookups

    return run if rule or precision == "fp16" else None


def fbgemm_table(rows, dim, precision, optimizer):
    from fbgemm_gpu import split_table_batched_embeddings_ops_training as tbe
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode

    kind = {"sgd": "EXACT_SGD", "rowwise": "EXACT_ROWWISE_ADAGRAD", "adagrad": "EXACT_ADAGRAD"}[optimizer]
    table = tbe.SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, EmbeddingLocation.HOST, tbe.ComputeDevice.CPU)],
        optimizer=getattr(tbe.OptimType, kind),
        learning_rate=0.05,
        eps=1e-8,
        weights_precision={"fp32": SparseType.FP32, "fp16": SparseType.FP16}[precision],
        output_dtype=SparseType.FP32,
        stochastic_rounding=False,
        pooling_mode=PoolingMode.SUM,
    )
    table.init_embedding_weights_uniform(-0.1, 0.1)
    return table


def fbgemm_side(torch, made, rows, dim, precision, optimizer):
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation

    made = [(torch.tensor(o), torch.tensor(i)) for o, i in made]
    lookups = sum(len(i) for _, i in made)
    if precision == "int8":
        from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen

        table = IntNBitTableBatchedEmbeddingBagsCodegen(
            [("", rows, dim, SparseType.INT8, EmbeddingLocation.HOST)], device="cpu", output_dtype=SparseType.FP32
        )
        table.fill_random_weights()
        made = [(o.int(), i.int()) for o, i in made]
    else:
        table = fbgemm_table(rows, dim, precision, optimizer)
    grads = [torch.randn(len(o) - 1, dim) for o, _ in made]

    def run(what):
        total = 0
        for (offsets, indices), grad in zip(made, grads):
            start = time.perf_counter_ns()
            if what == "frozen":
                with torch.no_grad():
                    table(indices, offsets)
            else:
                out = table(indices, offsets)
            if what == "step":
                out.backward(grad)
            total += time.perf_counter_ns() - start
            if what == "forward":
                out.backward(grad)
        return total / lookups

    return run


def makes_code(torch, what, dim, precision, optimizer, kept={}):
    """Whether FBGEMM makes machine code for a kind of cell, tried in a process of its own."""
    key = (what == "step" and optimizer, dim, precision)
    if key not in kept:
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            made = [([0, 2, 4], [1, 2, 3, 4])]
            before = code_pages()
            fbgemm_side(torch, made, 100, dim, precision, optimizer)("step" if key[0] else "frozen")
            os._exit(0 if code_pages() > before else 1)
        kept[key] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return kept[key]


def gradients(np, bags, dim):
    """Those of benches/peers.rs. Their sums are exact: a rounded sum near 0 would let AdaGrad's first step go either way."""
    return (np.arange(bags * dim) * 37 % 101).astype("f4").reshape(bags, dim) / np.float32(64) - np.float32(0.75)


def agreement(np, torch, program, folder):
    """The largest difference of a weight after five steps of FP32 tables that began alike, for each optimiser and peer."""
    rows, dim, steps = 20_000, 64, 5
    random = np.random.default_rng(3)
    # Few rows, so that most of them are in several bags of a batch.
    made = [(np.arange(0, 513 * 8, 8), (random.random(512 * 8) ** 3 * rows).astype("i8")) for _ in range(steps)]
    found = []
    for optimizer in OPTIMIZERS:
        hotrow = Hotrow(program, folder)
        run = hotrow.table(np, rows, made, dim, "fp32", optimizer, 0, 1)

        def read():
            out = os.path.join(folder, "rows")
            hotrow.ask(f"rows t {hotrow.words(np, np.arange(rows))} {out}")
            return np.fromfile(out, dtype="<f4").reshape(rows, dim)

        before = torch.tensor(read())
        run("step")
        after = torch.tensor(read())
        hotrow.child.kill()
        moved = (after - before).abs().max().item()
        grads = torch.tensor(gradients(np, 512, dim))
        tables = {}
        rule = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}.get(optimizer)
        if rule:
            bag = torch.nn.EmbeddingBag.from_pretrained(before.clone(), freeze=False, mode="sum", sparse=True, include_last_offset=True)
            tables["torch"] = (bag, bag.weight, rule(bag.parameters(), lr=0.05))
        try:
            table = fbgemm_table(rows, dim, "fp32", optimizer)
            table.split_embedding_weights()[0].copy_(before)
            tables["fbgemm"] = (table, table.split_embedding_weights()[0], None)
        except ImportError:
            pass
        for side, (table, weights, rule) in tables.items():
            for offsets, indices in made:
                table(torch.tensor(indices), torch.tensor(offsets)).backward(grads)
                if rule:
                    rule.step()
                    rule.zero_grad()
            found.append((optimizer, side, (weights.detach() - after).abs().max().item(), moved))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "peers"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="cells whose name has one of these texts, such as 'step zipf 64'")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--quick", action="store_true", help="a few cells")
    parser.add_argument("--data", default=os.environ.get("HOTROW_DATA"))
    parser.add_argument("--program")
    options = parser.parse_args()
    import numpy as np

    program = options.program
    if program is None:
        built = [path for path in glob.glob(os.path.join(ROOT, "target/release/deps/peers-*")) if os.access(path, os.X_OK)]
        if not built:
            sys.exit("wanted target/release/deps/peers-*, found none: run `cargo bench --bench peers --no-run` first")
        program = max(built, key=os.path.getmtime)
    sides, versions = {}, []
    try:
        import torch

        sides["torch"] = torch_side
        versions.append(f"torch {torch.__version__}")
        try:
            import fbgemm_gpu

            sides["fbgemm"] = fbgemm_side
            versions.append(f"fbgemm {fbgemm_gpu.__version__}")
        except ImportError as error:
            print(f"left out: fbgemm: {error}", file=sys.stderr)
    except ImportError as error:
        torch = None
        print(f"left out: torch and fbgemm: {error}", file=sys.stderr)
    os.makedirs(options.out, exist_ok=True)
    wanted = [text for text in options.only.split(",") if text]
    lines = []
    path = os.path.join(options.out, "peers.csv")
    if "fbgemm" in sides:
        # Before this process runs a kernel of FBGEMM, which would keep its machine code.
        for what, _, dim, precision, optimizer, cache in cells(False):
            if what != "step" or cache == 0:
                makes_code(torch, what, dim, precision, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        for optimizer, side, difference, moved in agreement(np, torch, program, folder) if torch else []:
            print(f"five steps with {optimizer}: differs from {side} by at most {difference:.1e}; weights moved by up to {moved:.2f}")
            if not difference < 1e-5:
                sys.exit(f"wanted a difference below 1e-5 from {side}, found {difference}: one side computes something else")
        for cell in cells(options.quick):
            what, law, dim, precision, optimizer, cache = cell
            name = f"{what} {law} {dim} {precision}" + (f" {optimizer}" if what == "step" else "") + (f" {cache}%" if cache else "")
            if wanted and not any(all(word in name.split() for word in text.split()) for text in wanted):
                continue
            input_ = batches(np, law, options.data, what == "small")
            if input_ is None:
                print(f"left out: {name}: no --data", file=sys.stderr)
                continue
            rows, made = input_
            run_what = "frozen" if what == "small" else what
            peers, note = {}, ""
            for side, make in sides.items():
                kind = "fp32" if cache else precision
                if side == "torch" and (optimizer == "rowwise" or kind == "int8" or (kind == "fp16" and what == "step")):
                    if not (kind == "int8" and what == "frozen"):
                        continue
                    kind = "fp32"
                if side == "fbgemm" and not makes_code(torch, run_what, dim, kind, optimizer):
                    note = "reference kernel: no machine code made"
                torch.manual_seed(1)
                run = make(torch, made, rows, dim, kind, optimizer)
                if run is not None:
                    peers[side if kind == precision else f"{side} {kind}"] = run
            hotrow = Hotrow(program, folder)
            others = [Hotrow(program, folder) for _ in range(2)] if cache else []
            for threads in (int(count) for count in options.threads.split(",")):
                runs = {"hotrow": hotrow.table(np, rows, made, dim, precision, optimizer, cache, threads)}
                if cache:
                    # Beside the other policy that counts, and beside our own uncached FP32.
                    runs["hotrow window"] = others[0].table(np, rows, made, dim, precision, optimizer, cache, threads, "window")
                    runs["hotrow fp32"] = others[1].table(np, rows, made, dim, "fp32", optimizer, 0, threads)
                if threads == int(os.environ.get("RAYON_NUM_THREADS", len(CORES))):
                    through = from_python(np, rows, made, dim, precision, optimizer, cache)
                    runs.update({"hotrow python": through} if through else {})
                runs.update(peers)
                if torch:
                    torch.set_num_threads(threads)
                times = {side: [] for side in runs}
                for done in range(options.rounds + 1):
                    lowest = {side: min(all_[1:]) for side, all_ in times.items() if len(all_) > 1}
                    for side, run in runs.items():
                        if done > 5 and lowest[side] > 3 * min(lowest.values()):
                            continue  # five rounds show that this side is far behind
                        time.sleep(0.02)  # the threads of the side that ran before stop spinning
                        run(run_what)  # its own threads wake, its rows come to the caches
                        times[side].append(run(run_what))
                for side, all_ in times.items():
                    kept = all_[1:]
                    said = note if side.startswith("fbgemm") else ""
                    lines.append((name, threads, side, round(min(kept), 2), round(statistics.median(kept), 2), len(kept), said))
                shown = ", ".join(f"{side} {min(all_[1:]):.1f} / {statistics.median(all_[1:]):.1f}" for side, all_ in times.items())
                print(f"{name}, {threads} threads: {shown} {note}", flush=True)
                for program_ in (hotrow, *others):
                    program_.ask("drop t")
            for program_ in (hotrow, *others):
                program_.child.kill()
            # After every cell, so that a run that is ended early leaves what it has.
            with open(path + ".new", "w", newline="", encoding="ascii") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["cell", "threads", "side", "lowest_ns", "median_ns", "rounds", "note"])
                writer.writerows(lines)
            os.replace(path + ".new", path)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="ascii") if line.startswith("model name")), "")
    print(f"{path}: {platform.machine()}, {cpu}, {os.cpu_count()} cores, {', '.join(versions)}")


if __name__ == "__main__":
    main()
