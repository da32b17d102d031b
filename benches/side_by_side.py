#!/usr/bin/env python3
"""What CUB and PyTorch reach on this machine, for the sizes of `hotrow bench suite`.

    benches/side_by_side.py [--out side_by_side.json] [--seconds 90] [--only sort,unique,gather,copy,unified] [--quick]

Needs an NVIDIA GPU with PyTorch. With nvcc, CUB's radix sort of pairs is timed by itself; with CuPy, its argsort. What is missing is said and left
out: the JSON is written whatever is there, and the exit status is 0 unless the arguments are bad. Device events time each
call; figures are medians. `hotrow bench suite --beside FILE` reads `sorts`. With CuPy, `unified` gathers and updates an FP32 table in CUDA's own unified
memory by the rows of `hotrow bench`. That part has run on no card yet: it was written without one.
"""

import argparse
import datetime
import json
import statistics
import sys
import time

PARTS = ("copy", "sort", "unique", "gather", "unified")
# The sizes of the suite, so that lines stand beside lines; 2^24 is the goal's.
SORTS = (10_000, 100_000, 1 << 20, 10_000_000, 1 << 24, 100_000_000)
# A batch of the suite: rows gathered, floats a row.
ROWS, DIM = 1 << 20, 128
# The table gathered from: at least 4 GiB, seventy times the largest L2 there is.
TABLE_BYTES = 4 << 30
COPY_BYTES = 1 << 30
WARM, ROUNDS = 3, 15
# The table of `hotrow bench` on a GPU: rows, accesses in a batch, accesses in a bag, and the share of the rows that the device's memory holds.
SWEEP, KEPT = (4_000_000, 160_000, 20), 0.1
# In percent, the accesses of a batch that go to the rows that are in every batch.
HOT = (0, 50, 95)


class Bench:
    """Results so far and the time that is left."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.result = {
            "schema": 1,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": {},
            "versions": {"python": sys.version.split()[0]},
            "copies": [],
            "sorts": [],
            "uniques": [],
            "gathers": [],
            "unified": [],
            "left_out": [],
        }

    def leave_out(self, what, why):
        self.result["left_out"].append(f"{what}: {why}")
        print(f"left out: {what}: {why}", file=sys.stderr)

    def attempt(self, what, work):
        """Runs `work`; whatever it raises costs this figure and no other."""
        if time.monotonic() > self.end:
            self.leave_out(what, "out of time")
            return
        try:
            work()
        # Out of memory, an operation this version lacks: of any type.
        except Exception as error:  # noqa: BLE001
            self.leave_out(what, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}")


def load(name):
    """The module, or None and why not."""
    try:
        return __import__(name), None
    # A broken installation raises anything, not ImportError alone.
    except Exception as error:  # noqa: BLE001
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def summary(seconds):
    return {
        "median": statistics.median(seconds),
        "lowest": min(seconds),
        "highest": max(seconds),
        "rounds": len(seconds),
    }


def torch_seconds(torch, work):
    """Seconds of each round by device events."""
    for _ in range(WARM):
        work()
    torch.cuda.synchronize()
    found = []
    for _ in range(ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e-3)
    return found


def with_torch(bench, torch, parts, quick):
    device = torch.device("cuda")
    properties = torch.cuda.get_device_properties(device)
    bench.result["machine"] = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "compute_capability": f"{properties.major}.{properties.minor}",
    }
    generator = torch.Generator(device=device).manual_seed(0)

    def keys(n):
        # All 32 bits, as signed: what a sort does with them is the same.
        return torch.randint(-(1 << 31), (1 << 31) - 1, (n,), dtype=torch.int32, device=device, generator=generator)

    def copy():
        size = (1 << 20) if quick else COPY_BYTES
        source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device, generator=generator)
        target = torch.empty_like(source)
        seconds = summary(torch_seconds(torch, lambda: target.copy_(source)))
        # Read and written.
        bench.result["copies"].append(
            {"name": "torch copy_", "bytes": size, "seconds": seconds, "bytes_per_second": 2 * size / seconds["median"]}
        )

    def sort(n):
        values = keys(n)
        seconds = summary(torch_seconds(torch, lambda: torch.sort(values, stable=True)))
        # int32 keys with int64 positions: more bytes than pairs of 32 bits, as torch has it.
        bench.result["sorts"].append(
            {"name": "torch.sort stable int32", "pairs": n, "seconds": seconds, "pairs_per_second": n / seconds["median"]}
        )

    def unique(n):
        # Zipf-like: log-uniform over as many rows as there are indices.
        logs = torch.rand(n, device=device, generator=generator) * torch.log(torch.tensor(float(n), device=device))
        indices = torch.exp(logs).to(torch.int64)
        seconds = summary(torch_seconds(torch, lambda: torch.unique(indices, return_inverse=True, return_counts=True)))
        bench.result["uniques"].append(
            {"name": "torch.unique inverse counts int64", "indices": n, "seconds": seconds, "indices_per_second": n / seconds["median"]}
        )

    def gather(table_bytes, dim, rows):
        table = torch.empty((table_bytes // (4 * dim), dim), dtype=torch.float32, device=device).uniform_(-1, 1, generator=generator)
        indices = torch.randint(0, table.shape[0], (rows,), device=device, generator=generator)
        out = torch.empty((rows, dim), dtype=torch.float32, device=device)
        seconds = summary(torch_seconds(torch, lambda: torch.index_select(table, 0, indices, out=out)))
        # A row read and a row written.
        moved = 2 * rows * dim * 4
        bench.result["gathers"].append(
            {
                "name": "torch.index_select float32",
                "rows": rows,
                "dim": dim,
                "table_bytes": table_bytes,
                "seconds": seconds,
                "bytes_per_second": moved / seconds["median"],
            }
        )

    sizes = SORTS[:1] if quick else SORTS
    if "copy" in parts:
        bench.attempt("torch copy", copy)
    if "sort" in parts:
        for n in sizes:
            bench.attempt(f"torch.sort of {n}", lambda n=n: sort(n))
    if "unique" in parts:
        for n in sizes[:4]:
            bench.attempt(f"torch.unique of {n}", lambda n=n: unique(n))
    if "gather" in parts:
        table_bytes, rows = ((16 << 20, 1 << 10) if quick else (TABLE_BYTES, ROWS))
        bench.attempt("torch.index_select", lambda: gather(table_bytes, DIM, rows))


def with_cupy(bench, cupy, quick):
    """Thrust's sort of keys with their positions: CUB's radix sort, as CuPy carries it."""

    def sort(n):
        keys = cupy.random.randint(0, 1 << 32, n, dtype=cupy.uint32)
        found = []
        for turn in range(WARM + ROUNDS):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            cupy.argsort(keys)
            end.record()
            end.synchronize()
            if turn >= WARM:
                found.append(cupy.cuda.get_elapsed_time(start, end) * 1e-3)
        seconds = summary(found)
        bench.result["sorts"].append(
            {"name": "cupy.argsort uint32", "pairs": n, "seconds": seconds, "pairs_per_second": n / seconds["median"]}
        )

    for n in SORTS[:1] if quick else SORTS:
        bench.attempt(f"cupy.argsort of {n}", lambda n=n: sort(n))


UNIFIED_SOURCE = r"""
extern "C" __global__ void gather(const float *table, const int *rows, float *out, int dim, int bag) {
    float sum = 0;
    for (int i = 0; i < bag; i++) sum += table[(size_t)rows[blockIdx.x * bag + i] * dim + threadIdx.x];
    out[(size_t)blockIdx.x * dim + threadIdx.x] = sum;
}
// The rows of a batch are distinct, so each has one writer.
extern "C" __global__ void update(float *table, const int *rows, const float *grads, int dim, int bag) {
    float by = 1e-3f * grads[(size_t)(blockIdx.x / bag) * dim + threadIdx.x];
    table[(size_t)rows[blockIdx.x] * dim + threadIdx.x] -= by;
}
"""
# cudaMemAdviseSetPreferredLocation with cudaCpuDeviceId, and cudaMemAdviseSetAccessedBy with the device.
PREFER_HOST, ACCESSED = (3, -1), (5, 0)
UNIFIED = {"plain": (), "preferred location host": (PREFER_HOST,), "preferred location host, accessed by device": (PREFER_HOST, ACCESSED)}


def with_unified(bench, cupy, quick):
    """An FP32 table in managed memory, of which a tenth fits the device: gathers and SGD updates by the same rows under each advice."""
    import ctypes

    import numpy

    rows, batch, bag = (20_000, 400, 20) if quick else SWEEP
    size, runtime = 4 * rows * DIM, cupy.cuda.runtime
    module = cupy.RawModule(code=UNIFIED_SOURCE)
    gather, update = (module.get_function(name) for name in ("gather", "update"))

    def batches(hot):
        """As the stream of `hotrow bench`: hot rows are in every batch, cold ones come in a random order, none twice before all have come."""
        random = numpy.random.default_rng(0)
        order = random.permutation(rows).astype(numpy.int32)
        kept, cold, begin = order[:batch], order[batch:], 0
        while True:
            share = round(batch * hot / 100)
            found = numpy.concatenate([kept[:share], numpy.take(cold, range(begin, begin + batch - share), mode="wrap")])
            begin += batch - share
            random.shuffle(found)
            yield cupy.asarray(found)

    def run(name, advice, hot):
        memory = cupy.cuda.malloc_managed(size)
        host = numpy.frombuffer((ctypes.c_float * (rows * DIM)).from_address(memory.ptr), numpy.float32).reshape(rows, DIM)
        # Written by the host, so that all pages begin there.
        numpy.random.default_rng(1).random(out=host, dtype=numpy.float32)
        for number, device in advice:
            runtime.memAdvise(memory.ptr, size, number, device)
        table = cupy.ndarray((rows, DIM), cupy.float32, memory)
        out = cupy.empty((batch // bag, DIM), cupy.float32)
        grads, stream = cupy.random.rand(batch // bag, DIM, dtype=cupy.float32), batches(hot)
        # All of the device's memory but the share that pages may take.
        free = runtime.memGetInfo()[0] - int(KEPT * size) - (64 << 20)
        ballast = cupy.cuda.Memory(free) if free > 0 else None
        times = ([], [])
        for turn in range(WARM + ROUNDS):
            found = next(stream)
            check = host[found[:bag].get()].sum(0) if turn == 0 else None
            events = [cupy.cuda.Event() for _ in range(3)]
            events[0].record()
            gather((batch // bag,), (DIM,), (table, found, out, numpy.int32(DIM), numpy.int32(bag)))
            events[1].record()
            update((batch,), (DIM,), (table, found, grads, numpy.int32(DIM), numpy.int32(bag)))
            events[2].record()
            events[2].synchronize()
            if check is not None and not numpy.allclose(out[0].get(), check, rtol=1e-5):
                raise RuntimeError("the first bag's sum is wrong")
            if turn >= WARM:
                for part in (0, 1):
                    times[part].append(cupy.cuda.get_elapsed_time(events[part], events[part + 1]) * 1e-3)
        del ballast
        logical = 4 * DIM * (batch // bag + batch)
        for part, seconds, moved in (("forward", times[0], logical), ("backward", times[1], 2 * logical)):
            line = {"name": name, "pass": part, "rows": rows, "dim": DIM, "batch": batch, "bag": bag, "hot_percent": hot, "kept_share": KEPT}
            seconds = summary(seconds)
            bench.result["unified"].append({**line, "seconds": seconds, "bytes_per_second": moved / seconds["median"]})

    for name, advice in UNIFIED.items():
        for hot in HOT:
            bench.attempt(f"unified memory, {name}, {hot} % hot", lambda name=name, advice=advice, hot=hot: run(name, advice, hot))


# CUB's radix sort of pairs of 32 bits as it is, compiled where it runs; CUDA's compiler brings CUB.
CUB_SOURCE = r"""
#include <cub/device/device_radix_sort.cuh>
#include <cstdint>
extern "C" int sort_pairs(void *temp, size_t *bytes, const uint32_t *keys_in, uint32_t *keys_out, const uint32_t *values_in,
                          uint32_t *values_out, int n, cudaStream_t stream) {
    return (int)cub::DeviceRadixSort::SortPairs(temp, *bytes, keys_in, keys_out, values_in, values_out, n, 0, 32, stream);
}
"""


def build_cub(folder):
    """CUB behind a C function, through the machine's own CUDA compiler; raises if there is none."""
    import ctypes
    import os
    import shutil
    import subprocess

    candidates = [shutil.which("nvcc"), *(os.path.join(root, "bin", "nvcc") for root in
                                          (os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"))]
    compiler = next((path for path in candidates if path and os.path.exists(path)), None)
    if compiler is None:
        raise RuntimeError("no nvcc, so CUB cannot be compiled")
    source, library = os.path.join(folder, "cub.cu"), os.path.join(folder, "libcub.so")
    with open(source, "w", encoding="ascii") as file:
        file.write(CUB_SOURCE)
    command = [compiler, "-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o", library, source]
    built = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if built.returncode != 0:
        raise RuntimeError("nvcc: " + (built.stderr.strip().splitlines() or ["failed"])[-1])
    loaded = ctypes.CDLL(library)
    loaded.sort_pairs.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)] + [ctypes.c_void_p] * 4 + [
        ctypes.c_int,
        ctypes.c_void_p,
    ]
    return loaded


def with_cub(bench, torch, quick):
    """CUB's own pairs, in PyTorch's memory and on its stream."""
    import ctypes
    import tempfile

    folder = tempfile.TemporaryDirectory()
    holder = {}
    bench.attempt("CUB", lambda: holder.update(library=build_cub(folder.name)))
    if "library" not in holder:
        folder.cleanup()
        return
    library, device = holder["library"], torch.device("cuda")

    def sort(n):
        keys = torch.randint(-(1 << 31), (1 << 31) - 1, (n,), dtype=torch.int32, device=device)
        values = torch.arange(n, dtype=torch.int32, device=device)
        keys_out, values_out = torch.empty_like(keys), torch.empty_like(values)
        size = ctypes.c_size_t(0)
        stream = torch.cuda.current_stream().cuda_stream
        pointers = [tensor.data_ptr() for tensor in (keys, keys_out, values, values_out)]

        def call(temp):
            error = library.sort_pairs(temp, ctypes.byref(size), *pointers, n, stream)
            if error:
                raise RuntimeError(f"CUDA error {error}")

        call(None)
        temp = torch.empty(max(size.value, 1), dtype=torch.uint8, device=device)
        seconds = summary(torch_seconds(torch, lambda: call(temp.data_ptr())))
        # Unsigned order, as CUB sorted them.
        found = keys_out.to(torch.int64) & 0xFFFFFFFF
        if not bool((found[1:] >= found[:-1]).all()) or not bool((keys[values_out.to(torch.int64)] == keys_out).all()):
            raise RuntimeError("the result is not sorted")
        bench.result["sorts"].append(
            {"name": "cub", "pairs": n, "seconds": seconds, "pairs_per_second": n / seconds["median"]}
        )

    for n in SORTS[:1] if quick else SORTS:
        bench.attempt(f"CUB sort of {n}", lambda n=n: sort(n))
    folder.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="side_by_side.json", help="file for the JSON")
    parser.add_argument("--seconds", type=float, default=90.0, help="time after which nothing further is begun")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma separated: " + ", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="the smallest sizes: shows that it runs")
    options = parser.parse_args()
    parts = [part for part in options.only.split(",") if part]
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        parser.error(f"--only: wanted some of {', '.join(PARTS)}, found {options.only!r}")
    if not options.seconds > 0:
        parser.error(f"--seconds: wanted a number above 0, found {options.seconds}")
    bench = Bench(options.seconds)
    torch, why = load("torch")
    if torch is None:
        bench.leave_out("PyTorch", why)
    else:
        bench.result["versions"]["torch"] = str(torch.__version__)
        bench.result["versions"]["cuda"] = str(getattr(torch.version, "cuda", None))
        usable = {}
        bench.attempt("CUDA", lambda: usable.update(cuda=torch.cuda.is_available()))
        if not usable.get("cuda"):
            bench.leave_out("everything on the GPU", "PyTorch sees no CUDA device")
        else:
            bench.attempt("PyTorch", lambda: with_torch(bench, torch, parts, options.quick))
            if "sort" in parts:
                bench.attempt("CUB", lambda: with_cub(bench, torch, options.quick))
    if "sort" in parts or "unified" in parts:
        cupy, why = load("cupy")
        if cupy is None:
            bench.leave_out("CuPy", why)
        else:
            bench.result["versions"]["cupy"] = str(cupy.__version__)
            if "sort" in parts:
                bench.attempt("CuPy", lambda: with_cupy(bench, cupy, options.quick))
            if "unified" in parts:
                bench.attempt("unified memory", lambda: with_unified(bench, cupy, options.quick))
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(bench.result, file, indent=2)
        file.write("\n")
    for sort in bench.result["sorts"]:
        print(f"{sort['name']}, {sort['pairs']} pairs: {sort['pairs_per_second'] * 1e-9:.2f} G pairs/s")
    for kind in ("copies", "gathers"):
        for line in bench.result[kind]:
            print(f"{line['name']}: {line['bytes_per_second'] * 1e-9:.0f} GB/s")
    for line in bench.result["unified"]:
        print(f"unified memory, {line['name']}, {line['hot_percent']} % hot, {line['pass']}: {line['bytes_per_second'] * 1e-9:.1f} logical GB/s")
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
