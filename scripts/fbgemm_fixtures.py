#!/usr/bin/env python3
"""Makes cli/tests/fixtures: tables as numpy, torch and FBGEMM write them, and what FBGEMM reads from the bytes that `hotrow export` writes.

    pip install torch==2.9.1 fbgemm-gpu-cpu==1.4.2 safetensors numpy
    cargo build -p hotrow-cli
    scripts/fbgemm_fixtures.py [--hotrow target/debug/hotrow] [--check]

The tests of the command (cli/tests/export.rs) read these files and need no Python. `--check` writes nothing and fails if a file would change.

rows.npy               24 rows x 16, FP32: numpy
torch.safetensors      the state dict of two EmbeddingBags in a ModuleList: torch
fbgemm.safetensors     for P of int8, int4, int2 and F of fused, tbe:
    F.P                rows.npy as FBGEMM's own operators pack it
    F.P.values         those bytes as FBGEMM reads them
    export.F.P         rows.npy as `hotrow import --precision P --rounding nearest` and `hotrow export --format F` pack it
    export.F.P.values  those bytes as FBGEMM reads them
    export.safetensors the file that `hotrow export --format safetensors` makes of torch.safetensors; torch has loaded it
"""

import argparse
import os
import subprocess
import sys
import tempfile

import fbgemm_gpu  # noqa: F401, its operators are torch's from here on
import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen
from safetensors.torch import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS, DIM = 24, 16
BITS = {"int8": 8, "int4": 4, "int2": 2}


def rows():
    """Normal numbers of several sizes, and rows at the edges: constant, zero, one value apart, small, large."""
    random = np.random.default_rng(22)
    made = random.normal(size=(ROWS, DIM)) * np.repeat([1e-3, 0.1, 1.0, 30.0], ROWS // 4)[:, None]
    made = made.astype("<f4")
    made[0], made[1], made[2] = 0.0, 1.5, -0.0
    made[3, 1:] = made[3, 0]
    made[4] = np.linspace(-65000, 65000, DIM)
    made[5] = np.linspace(1e-7, 3e-7, DIM)
    made[6] = 1000 + np.linspace(0, 0.25, DIM)
    return made


def fused(values, bits):
    if bits == 8:
        return torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(values)
    return torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(values, bits)


def fused_values(packed, bits):
    if bits == 8:
        return torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat(packed)
    return torch.ops.fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat(packed, bits)


def tbe(packed, dim, bits):
    """An inference table of these rows of bytes, scale and bias first."""
    kind = SparseType(f"int{bits}")
    specs = [("", packed.shape[0], dim, kind, EmbeddingLocation.HOST)]
    table = IntNBitTableBatchedEmbeddingBagsCodegen(specs, device="cpu", output_dtype=SparseType.FP32)
    table.initialize_weights()
    table.assign_embedding_weights([(packed[:, 4:], packed[:, :4])])
    return table


def tbe_values(packed, dim, bits):
    indices = torch.arange(packed.shape[0], dtype=torch.int32)
    return tbe(packed, dim, bits)(indices, torch.arange(packed.shape[0] + 1, dtype=torch.int32))


def as_tbe(packed, bits):
    """FBGEMM's fused rows with scale and bias moved to the front; INT8 rows get them in FP16."""
    if bits == 8:
        codes, numbers = packed[:, :-8], packed[:, -8:].contiguous().view(torch.float32)
        numbers = numbers.to(torch.float16).view(torch.uint8)
    else:
        codes, numbers = packed[:, :-4], packed[:, -4:]
    return torch.cat([numbers, codes], dim=1).contiguous()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotrow", default=os.path.join(ROOT, "target", "debug", "hotrow"))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    place = os.path.join(ROOT, "cli", "tests", "fixtures")

    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)  # noqa: E731

        def hotrow(*arguments):
            subprocess.run([given.hotrow, *arguments], check=True, stdout=subprocess.DEVNULL)

        made = rows()
        np.save(path("rows.npy"), made)
        values = torch.from_numpy(made)

        torch.manual_seed(22)
        model = torch.nn.ModuleList(torch.nn.EmbeddingBag(count, 6, mode="sum") for count in (5, 3))
        save_file(model.state_dict(), path("torch.safetensors"))
        hotrow("import", path("torch.safetensors"), "--out", path("plain.hotrow"))
        hotrow("export", path("plain.hotrow"), "--format", "safetensors", "--out", path("plain.safetensors"))
        again = torch.nn.ModuleList(torch.nn.EmbeddingBag(count, 6, mode="sum") for count in (5, 3))
        again.load_state_dict(load_file(path("plain.safetensors")))
        for ours, theirs in zip(again.parameters(), model.parameters()):
            assert torch.equal(ours, theirs), "torch read other values than it wrote"
        with open(path("plain.safetensors"), "rb") as file:
            tensors = {"export.safetensors": torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)}

        for precision, bits in BITS.items():
            packed = fused(values, bits)
            header_first = as_tbe(packed, bits)
            tensors[f"fused.{precision}"] = packed
            tensors[f"fused.{precision}.values"] = fused_values(packed, bits)
            tensors[f"tbe.{precision}"] = header_first
            tensors[f"tbe.{precision}.values"] = tbe_values(header_first, DIM, bits)
            table = path(f"{precision}.hotrow")
            hotrow("import", path("rows.npy"), "--precision", precision, "--rounding", "nearest", "--out", table)
            for form, read in (("fused", fused_values), ("tbe", lambda packed, bits: tbe_values(packed, DIM, bits))):
                hotrow("export", table, "--format", form, "--out", path("out.safetensors"))
                packed = load_file(path("out.safetensors"))["weight"]
                found = read(packed, bits)
                assert found.shape == values.shape, "FBGEMM read another shape"
                tensors[f"export.{form}.{precision}"] = packed
                tensors[f"export.{form}.{precision}.values"] = found
        save_file(tensors, path("fbgemm.safetensors"))

        os.makedirs(place, exist_ok=True)
        changed = []
        for name in ("rows.npy", "torch.safetensors", "fbgemm.safetensors"):
            with open(path(name), "rb") as file:
                content = file.read()
            target = os.path.join(place, name)
            old = open(target, "rb").read() if os.path.exists(target) else None
            if old != content:
                changed.append(name)
                if not given.check:
                    with open(target, "wb") as file:
                        file.write(content)
            print(f"{name}: {len(content)} bytes{', changed' if old != content else ''}")
        if given.check and changed:
            sys.exit(f"wanted the files as they are, found others: {', '.join(changed)}")


main()
