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

TABLES, BAGS = [5, 3], 4
RULE = hotrow.SGD(0.5)
# What is no argument by name: the gradient that torch passes, and what load_state_dict takes.
UNNAMED = {"EmbeddingBag.load_state_dict.weight", "EmbeddingBag.load_state_dict.packed", "EmbeddingBag.backward.grad"}


def cases(random, dim):
    """By the names of the calls: the arrays that each takes, and what runs it on new tables."""
    offsets = np.concatenate([[0], np.sort(random.integers(0, 7, BAGS))]).astype("u4")
    ids = random.integers(0, 3, offsets[-1]).astype("u4")
    floats = lambda *shape: (random.integers(-9, 10, shape) / 4).astype("f4")  # float16 has them, too
    values, n, batch = floats(8, dim), len(ids), {"indices": ids, "offsets": offsets}
    rows = np.arange(8, dtype="u4")
    settings = dict(cache_rows=int(random.choice([0, 2])), optimizer=RULE, values=values, device="cpu")
    makers = [
        lambda: Group(TABLES, dim, precision="fp32", **settings),
        lambda: SharedGroup(TABLES, dim, 24, chunk=1, optimizer=RULE, init=hotrow.Normal(), device="cpu"),
        lambda: Group(TABLES, dim, precision="int8", **settings),
    ]

    def on(call, kinds=(0, 1)):
        make = makers[random.choice(kinds)]

        def run(**arrays):
            group = make()
            try:
                return [call(group, **arrays), group.read_rows(rows)]
            finally:
                run.after = group.pending, group.counters()["accesses"]

        return run

    def look_up(name):
        def call(group, **arrays):
            found = getattr(group, name)(**arrays)
            if group.pending:
                group.backward(np.ones((BAGS, dim), "f4"))
            return found

        return on(call)

    def after_forward(name):
        return on(lambda group, **arrays: (group.forward(ids, offsets), getattr(group, name)(**arrays))[1])

    packed, codes = makers[0]().packed(0, 8), makers[2]().read_codes(0)
    found = {
        "Table.forward": (batch | {"weights": floats(n), "out": floats(BAGS, dim)}, look_up("forward")),
        "Table.forward_frozen": (batch | {"weights": floats(n), "out": floats(BAGS, dim)}, look_up("forward_frozen")),
        "Table.backward": ({"grad": floats(BAGS, dim)}, after_forward("backward")),
        "Table.weight_gradient": (batch | {"grad": floats(BAGS, dim)}, after_forward("weight_gradient")),
        "Table.read_rows": ({"rows": ids, "out": floats(n, dim)}, on(lambda group, **arrays: group.read_rows(**arrays))),
        "Table.write_rows": ({"rows": random.permutation(rows), "values": floats(8, dim)}, on(lambda group, **arrays: group.write_rows(**arrays), [0])),
        "Table.write_packed": ({"packed": packed[::-1].copy()}, on(lambda group, packed: group.write_packed(0, packed), [0])),
        "Group.write_codes": (
            {"codes": codes.codes[::-1].copy(), "scale": abs(floats(5)) + 1, "bias": floats(5)},
            on(lambda group, **arrays: group.write_codes(0, hotrow.Codes(**arrays)), [2]),
        ),
        "Group.__new__": (
            {"rows": np.array(TABLES, "u4"), "values": values},
            lambda **arrays: [Group(dim=dim, precision="fp32", device="cpu", **arrays).read_rows(rows)],
        ),
        "SharedGroup.__new__": (
            {"rows": np.array(TABLES, "u4")},
            lambda rows: [np.array(SharedGroup(rows, dim, 24, device="cpu").total_rows)],
        ),
        "plan_memory": ({"rows": np.array(TABLES, "u4")}, lambda rows: [np.array(list(hotrow.plan_memory(rows, dim).values()))]),
        "simulate": (
            {"trace": random.integers(0, 200, 30).astype("u4")},
            lambda trace: [np.array([one["hits"] for one in hotrow.simulate(trace, cache_percent=(10, 100))])],
        ),
    }
    if torch:
        make = lambda: EmbeddingBag.from_pretrained(values, freeze=False, mode="sum", precision="fp32", optimizer=RULE, device="cpu")

        def bag(call):
            def run(**arrays):
                bag = make()
                out = call(bag, **{name: array if torch.is_tensor(array) else torch.from_numpy(array) for name, array in arrays.items()})
                return [*([] if out is None else [out.detach().numpy()]), bag.group.read_rows(rows)]

            return run

        def forward(bag, **arrays):
            out = bag(**arrays)
            out.sum().backward()
            return out

        def load(bag, **arrays):
            bag.load_state_dict(arrays)

        starts = {"input": ids.astype("i8"), "offsets": offsets[:-1].astype("i8"), "per_sample_weights": floats(n)}
        plain = torch.from_numpy(starts["input"]), torch.from_numpy(starts["offsets"])
        state = EmbeddingBag(8, dim, precision="fp32", optimizer=RULE, device="cpu", state="packed").state_dict()["packed"].numpy()
        found |= {
            "EmbeddingBag.forward": (starts, bag(forward)),
            "EmbeddingBag.forward of bags": ({"input": random.integers(0, 8, (BAGS, 3)), "per_sample_weights": floats(BAGS, 3)}, bag(forward)),
            "EmbeddingBag.backward": ({"grad": floats(BAGS, dim)}, bag(lambda bag, grad: bag(*plain).backward(grad))),
            "EmbeddingBag.load_state_dict": ({"weight": floats(8, dim)}, bag(load)),
            "EmbeddingBag.load_state_dict packed": ({"packed": state}, bag(load)),
            "EmbeddingBag.from_pretrained": (
                {"embeddings": values},
                lambda embeddings: [EmbeddingBag.from_pretrained(embeddings, precision="fp32", device="cpu").group.read_rows(rows)],
            ),
        }
    return found


def array_arguments():
    """The arguments of the package's calls that are arrays, by the types in its source."""
    found = set()
    for name in ("_native.pyi", "__init__.py", "torch.py"):
        for node in ast.parse((Path(hotrow.__file__).parent / name).read_text()).body:
            for call in node.body if isinstance(node, ast.ClassDef) else [node]:
                if not isinstance(call, ast.FunctionDef) or node.name.startswith("_") or (call.name.startswith("_") and call.name != "__new__"):
                    continue
                for argument in [*call.args.args, *call.args.kwonlyargs]:
                    types = {one.split("[")[0] for one in ast.unparse(argument.annotation).split(" | ")} if argument.annotation else set()
                    if types & {"ArrayLike", "NDArray", "Tensor", "Codes"} or argument.arg == "out":
                        arguments = hotrow.Codes._fields if "Codes" in types else [argument.arg]
                        of = call.name if node is call else f"{node.name}.{call.name}"
                        found |= {f"{of}.{argument}".replace("Table.__new__", "Group.__new__") for argument in arguments}
    return found


ARGUMENTS = sorted(f"{call}.{name}" for call, (arrays, _) in cases(np.random.default_rng(0), 3).items() for name in arrays)


def test_no_array_is_left_out():
    wanted, found = array_arguments() | UNNAMED, {name.replace(" of bags", "").replace(" packed", "") for name in ARGUMENTS}
    assert {"Table.forward.out", "Table.backward.grad", "simulate.trace", "Group.write_codes.bias", "EmbeddingBag.forward.offsets"} < wanted
    assert found == {name for name in wanted if torch or not name.startswith("EmbeddingBag")}


def lie(random, array):
    """An array of the same type and shape that lies otherwise: of its values or, where a stride is 0, of some of them."""
    how = random.choice(["C", "F", "strides", "strides", "unaligned"])
    order = "F" if how == "F" else random.choice(["C", "F"])
    if how == "unaligned":
        other = np.zeros(array.nbytes + 1, "u1")[1:].view(array.dtype).reshape(array.shape, order=order)
        other[...] = array
        array = other
    elif how == "strides":
        for axis in range(array.ndim):
            step = int(random.choice([-2, -1, 0, 1, 2, 3]))
            if step:
                spread = np.repeat(array if step > 0 else np.flip(array, axis), abs(step), axis)
                array = spread[(slice(None),) * axis + (slice(None, None, step) if step > 0 or len(spread) == 0 else slice(step + abs(step) - 1, None, step),)]
            elif array.shape[axis]:
                array = as_strided(array, array.shape, [0 if axis == k else stride for k, stride in enumerate(array.strides)])
    else:
        array = array.copy(order=order)
    if random.random() < 0.2:
        array.flags.writeable = False
    return array


def drawn(random, argument, array):
    """What is passed, np.ascontiguousarray of it, and whether it must be taken (True) or refused (False); None: either."""
    name, of_torch = argument.split(".")[-1], argument.startswith("EmbeddingBag")
    types = {"u": ["u4", "i4", "i8", "u8", "i2", "u1", ">i4", ">u8"], "i": ["i4", "i8", "i2"], "f": ["f4", "f4", "f2", ">f4", ">f2"]}[array.dtype.kind]
    if array.dtype == np.uint8:
        types = ["u1"]
    elif name in ("scale", "bias", "out"):
        types = ["f4", "f4", ">f4"]
    found = lie(random, array.astype(random.choice(types)))
    plain = np.ascontiguousarray(found).astype(array.dtype)
    if name == "out":
        fits = found.flags.c_contiguous and found.flags.aligned and found.flags.writeable and found.dtype == np.float32
        return (found, plain, fits) if random.random() < 0.7 or not fits else (OnDevice(found, 1), plain, None)
    only_torch = of_torch and name != "embeddings"
    kind = "torch" if only_torch else random.choice(["numpy", "numpy", "list", "view", "DLPack"] + ["torch"] * bool(torch) * 2)
    if kind in ("list", "view") and name not in ("codes", "scale", "bias", "packed", "embeddings"):
        return found.tolist() if kind == "list" else memoryview(found), plain, True
    if kind == "DLPack" and found.dtype.isnative and found.flags.aligned and found.flags.writeable:
        return OnDevice(found, 1), plain, True
    if kind == "torch":
        try:
            tensor = torch.from_numpy(found)
        except (ValueError, TypeError):  # other orders of bytes, negative strides
            return drawn(random, argument, array) if only_torch else (found, plain, True)
        lazy = random.choice(["", "", "gradient", "negative"]) if tensor.is_floating_point() else ""
        if lazy == "gradient" and name != "grad":
            return tensor.clone().requires_grad_(), plain, of_torch
        return (torch._neg_view(-tensor), plain, of_torch) if lazy == "negative" else (tensor, plain, True)
    return found, plain, True


def outcome(run, arrays):
    """The bits of the results, or the error."""
    try:
        return [None if one is None else np.ascontiguousarray(getattr(one, "array", one)).tobytes() for one in run(**arrays)]
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
    assert taken > 5 and (changed > 5 or name == "out")
