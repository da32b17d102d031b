"""Every array of every call, however it lies in memory: used as np.ascontiguousarray of it, or refused by name."""

import ast
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import hotrow
from hotrow import Group, SharedGroup
from test_numpy import OnDevice

try:
    import torch
    from hotrow.torch import EmbeddingBag
except ImportError:
    torch = None

TABLES, BAGS, RULE = [5, 3], 4, hotrow.SGD(0.5)
# What is no argument by name: the gradient that torch passes, and what load_state_dict takes.
UNNAMED = {"EmbeddingBag.load_state_dict.weight", "EmbeddingBag.load_state_dict.packed", "EmbeddingBag.backward.grad"}


def cases(random, dim):
    """By the names of the calls: the arrays that each takes, and what runs it on new tables."""
    offsets = np.concatenate([[0], np.sort(random.integers(0, 7, BAGS))]).astype("u4")
    ids, rows = random.integers(0, 3, offsets[-1]).astype("u4"), np.arange(8, dtype="u4")
    floats = lambda *shape: (random.integers(-9, 10, shape) / 4).astype("f4")  # float16 has them, too
    values, weights, grad, batch = floats(8, dim), floats(len(ids)), floats(BAGS, dim), {"indices": ids, "offsets": offsets}
    settings = dict(cache_rows=int(random.choice([0, 2])), optimizer=RULE, values=values, device="cpu")
    shared = lambda rows=TABLES: SharedGroup(rows, dim, 24, chunk=1, optimizer=RULE, init=hotrow.Normal(), device="cpu")
    group, int8 = lambda: Group(TABLES, dim, precision="fp32", **settings), lambda: Group(TABLES, dim, precision="int8", **settings)

    def on(call, make=None, before=lambda group: None):
        make = make or (group, shared)[random.integers(2)]

        def run(**arrays):
            table = make()
            before(table)
            try:
                found = call(table, **arrays)
                if table.pending:
                    table.backward(grad)
                return [found, table.read_rows(rows)]
            finally:
                run.after = table.pending, table.counters()["accesses"]

        return run

    named = lambda name, *make, **more: on(lambda table, **arrays: getattr(table, name)(**arrays), *make, **more)
    forward, outs = {"before": lambda table: table.forward(ids, offsets)}, {"weights": weights, "out": floats(BAGS, dim)}
    codes, sizes, trace = floats(5), np.array(TABLES, "u4"), random.integers(0, 200, 30).astype("u4")
    write_codes = on(lambda table, **arrays: table.write_codes(0, hotrow.Codes(**arrays)), int8)
    found = {
        "Table.forward": (batch | outs, named("forward")),
        "Table.forward_frozen": (batch | outs, named("forward_frozen")),
        "Table.backward": ({"grad": grad}, named("backward", **forward)),
        "Table.weight_gradient": (batch | {"grad": grad}, named("weight_gradient", **forward)),
        "Table.read_rows": ({"rows": ids, "out": floats(len(ids), dim)}, named("read_rows")),
        "Table.write_rows": ({"rows": random.permutation(rows), "values": floats(8, dim)}, named("write_rows", group)),
        "Table.write_packed": ({"packed": group().packed(3, 5)}, on(lambda table, packed: table.write_packed(0, packed), group)),
        "Group.write_codes": ({"codes": int8().read_codes(1).codes.repeat(2, 0)[:5], "scale": abs(codes) + 1, "bias": codes}, write_codes),
        "Group.__new__": ({"rows": sizes, "values": values}, lambda **arrays: [Group(dim=dim, device="cpu", **arrays).read_rows(rows)]),
        "SharedGroup.__new__": ({"rows": sizes}, lambda rows: [shared(rows).total_rows]),
        "plan_memory": ({"rows": sizes}, lambda rows: [list(hotrow.plan_memory(rows, dim).values())]),
        "simulate": ({"trace": trace}, lambda trace: [[one["hits"] for one in hotrow.simulate(trace, cache_percent=(10, 100))]]),
    }
    if torch:

        more = dict(mode="sum", precision="fp32", device="cpu", state="packed")

        def bag(call):
            def run(**arrays):
                bag = EmbeddingBag.from_pretrained(values, freeze=False, optimizer=RULE, **more)
                out = call(bag, **{name: array if torch.is_tensor(array) else torch.from_numpy(array) for name, array in arrays.items()})
                return [None if out is None else out.detach(), bag.group.read_rows(rows)]

            return run

        step = bag(lambda bag, **arrays: [out := bag(**arrays), out.sum().backward()][0])
        load = bag(lambda bag, **arrays: bag.load_state_dict(arrays) and None)
        starts = {"input": ids.astype("i8"), "offsets": offsets[:-1].astype("i8")}
        state = EmbeddingBag(8, dim, optimizer=RULE, **more).state_dict()["packed"].numpy()
        found |= {
            "EmbeddingBag.forward": (starts | {"per_sample_weights": weights}, step),
            "EmbeddingBag.forward of bags": ({"input": random.integers(0, 8, (BAGS, 3)), "per_sample_weights": floats(BAGS, 3)}, step),
            "EmbeddingBag.backward": ({"grad": grad}, bag(lambda bag, grad: bag(*map(torch.from_numpy, starts.values())).backward(grad))),
            "EmbeddingBag.load_state_dict": ({"weight": floats(8, dim)}, load),
            "EmbeddingBag.load_state_dict packed": ({"packed": state}, load),
            "EmbeddingBag.from_pretrained": ({"embeddings": values}, lambda **given: [EmbeddingBag.from_pretrained(**given, **more).group.read_rows(rows)]),
        }
    return found


ARGUMENTS = sorted(f"{call}.{name}" for call, (arrays, _) in cases(np.random.default_rng(0), 3).items() for name in arrays)


def test_no_array_is_left_out():
    """The arguments that are arrays by the types in the package's source are those that the next test draws."""
    wanted = set(UNNAMED)
    for name in ("_native.pyi", "__init__.py", "torch.py"):
        for node in ast.parse((Path(hotrow.__file__).parent / name).read_text()).body:
            for call in node.body if isinstance(node, ast.ClassDef) else [node]:
                if not isinstance(call, ast.FunctionDef) or node.name.startswith("_") or (call.name.startswith("_") and call.name != "__new__"):
                    continue
                of = call.name if node is call else f"{node.name}.{call.name}".replace("Table.__new__", "Group.__new__")
                for argument in [*call.args.args, *call.args.kwonlyargs]:
                    types = {one.split("[")[0] for one in ast.unparse(argument.annotation or argument).split(" | ")}
                    if types & {"ArrayLike", "NDArray", "Tensor", "Codes"} or argument.arg == "out":
                        wanted |= {f"{of}.{name}" for name in (hotrow.Codes._fields if "Codes" in types else [argument.arg])}
    assert {"Table.forward.out", "Table.backward.grad", "simulate.trace", "Group.write_codes.bias", "EmbeddingBag.forward.offsets"} < wanted
    wanted = {name for name in wanted if torch or not name.startswith("EmbeddingBag")}
    assert {name.replace(" of bags", "").replace(" packed", "") for name in ARGUMENTS} == wanted


def lie(random, array):
    """An array of the same type and shape that lies otherwise: of its values or, where a stride is 0, of some of them."""
    how, order = random.choice(["C", "F", "strides", "strides", "unaligned"]), random.choice(["C", "F"])
    if how == "unaligned":
        found = np.zeros(array.nbytes + 1, "u1")[1:].view(array.dtype).reshape(array.shape, order=order)
        found[...] = array
    else:
        found = array.copy(order=how if how == "F" else order)
    for axis in range(array.ndim if how == "strides" else 0):
        step = int(random.choice([-2, -1, 0, 1, 2, 3]))
        if step:
            spread = np.repeat(np.flip(found, axis) if step < 0 else found, abs(step), axis)
            found = np.moveaxis(np.moveaxis(spread, axis, 0)[-1 if step < 0 else 0 :: step], 0, axis) if spread.size else found
        elif found.shape[axis]:
            found = as_strided(found, found.shape, [0 if axis == k else stride for k, stride in enumerate(found.strides)])
    assert found.shape == array.shape
    if random.random() < 0.2:
        found.flags.writeable = False
    return found


def drawn(random, argument, array):
    """What is passed, np.ascontiguousarray of it, and whether it must be taken (True) or refused (False); None: either."""
    name, of_torch = argument.split(".")[-1], argument.startswith("EmbeddingBag")
    types = {"u": ["u4", "i4", "i8", "u8", "i2", "u1", ">i4", ">u8"], "i": ["i4", "i8", "i2"], "f": ["f4", "f4", "f2", ">f4", ">f2"]}[array.dtype.kind]
    exact = {"codes": ["u1"], "packed": ["u1"], "scale": ["f4", ">f4"], "bias": ["f4", ">f4"], "out": ["f4", "f4", ">f4"]}
    found = array.astype(random.choice(exact.get(name, types)))
    found = found if name == "out" and random.random() < 0.5 else lie(random, found)
    plain = np.ascontiguousarray(found).astype(array.dtype)
    if name == "out":
        fits = found.flags.c_contiguous and found.flags.aligned and found.flags.writeable and found.dtype == np.float32
        return (found, plain, fits) if random.random() < 0.7 or not fits else (OnDevice(found, 1), plain, None)
    only_torch = of_torch and name != "embeddings"
    kind = "torch" if only_torch else random.choice(["numpy", "numpy", "list", "view", "DLPack"] + ["torch"] * bool(torch) * 2)
    if kind in ("list", "view") and name not in (*exact, "embeddings"):
        return found.tolist() if kind == "list" else memoryview(found), plain, True
    if kind == "DLPack" and found.dtype.isnative and found.flags.aligned and found.flags.writeable:
        return OnDevice(found, 1), plain, True
    if kind != "torch":
        return found, plain, True
    try:
        tensor = torch.from_numpy(found)
    except (ValueError, TypeError):  # other orders of bytes, steps backwards
        return drawn(random, argument, array)
    lazy = random.choice(["", "", "gradient", "negative"]) if tensor.is_floating_point() else ""
    if lazy == "gradient" and name != "grad":
        return tensor.clone().requires_grad_(), plain, of_torch
    return (torch._neg_view(-tensor), plain, of_torch) if lazy == "negative" else (tensor, plain, True)


def outcome(run, arrays):
    """The bits of the results, or the error."""
    try:
        return [np.ascontiguousarray(getattr(one, "array", one)).tobytes() for one in run(**arrays) if one is not None]
    except (hotrow.Error, RuntimeError) as error:
        return [type(error), str(error)]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable", "ignore:hotrow. packed")
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_arrays_as_they_lie(random, argument):
    call, name = argument.rsplit(".", 1)
    changed = taken = 0
    for _ in range(40):
        arrays, run = cases(random, int(random.choice([1, 3])))[call]
        given, plain, fits = drawn(random, argument, arrays[name])
        wanted, found = outcome(run, arrays | {name: plain.copy()}), outcome(run, arrays | {name: given})
        if fits is False or (fits is None and found != wanted):
            assert found[0] is hotrow.InvalidValue and found[1].startswith(f"{name}:"), (given, found)
            if name == "out":  # nothing was written, no step begun
                assert np.array_equal(getattr(given, "array", given), plain) and run.after == (False, 0)
        else:
            assert found == wanted, (given, getattr(given, "strides", None), plain)
            taken += not isinstance(found[0], type)
        changed += wanted != outcome(run, arrays | {name: arrays[name] - 1 if arrays[name].dtype == "f4" else arrays[name] // 2})
    # What is compared depends on the array.
    assert taken and (changed or name == "out")
