#!/usr/bin/env python3
"""Compiles SPIR-V with a Vulkan driver that needs no card, and says what its compiler reports. Started by scripts/isa.

isa_statistics.py FOLDER CODE: FOLDER has what the package hotrow-isa wrote. Prints a line of JSON for each text in turn: its name, and either the driver's
statistics or what failed. The machine code goes to CODE. The device has the features that wgpu 30 asks for, robustBufferAccess2 among them, and no size of
subgroups is required, as in wgpu."""

import ctypes, json, sys
from pathlib import Path

TYPES = {"u": ctypes.c_uint32, "l": ctypes.c_uint64, "p": ctypes.c_void_p, "s": ctypes.c_char_p, "n": ctypes.c_size_t, "name": ctypes.c_char * 256}
FLOAT, BOOL, SIGNED = 3, 0, 1  # VkPipelineExecutableStatisticFormatKHR; the rest are unsigned
kept = []  # what structs point to


def struct(number, fields):
    """A struct of Vulkan's: VkStructureType, and its fields as `name:type`. A number of None is a struct without the two first fields."""
    fields = [field.split(":") for field in fields.split()]
    head = [] if number is None else [("type", ctypes.c_uint32), ("next", ctypes.c_void_p)]
    made = type("Struct", (ctypes.Structure,), {"_fields_": head + [(name, TYPES.get(kind) or globals()[kind]) for name, kind in fields]})

    def new(**values):
        one = made(**({} if number is None else {"type": number}))
        for name, value in values.items():
            kept.append(value)
            pointer = isinstance(value, (ctypes.Structure, ctypes.Array)) and not isinstance(getattr(one, name), ctypes.Structure)
            setattr(one, name, ctypes.addressof(value) if pointer else value)
        return one

    new.type = made
    return new


application = struct(0, "next_name:s version:u engine:s engine_version:u api:u")
instance_info = struct(1, "flags:u application:p layers:u layer_names:p extensions:u names:p")
queue_info = struct(2, "flags:u family:u count:u priorities:p")
device_info = struct(3, "flags:u queues:u queue:p layers:u layer_names:p extensions:u names:p features:p")
module_info = struct(16, "flags:u size:n code:p")
Stage_info = struct(18, "flags:u stage:u module:l entry:s constants:p")
Stage = Stage_info.type
pipeline_info = struct(29, "flags:u stage:Stage layout:l base:l base_index:u")
layout_info = struct(30, "flags:u sets:u set:p ranges:u range:p")
set_info = struct(32, "flags:u count:u bindings:p")
binding_info = struct(None, "binding:u kind:u count:u stages:u samplers:p")
features13 = struct(53, "image:u inline:u after_bind:u cache:u private:u demote:u terminate:u subgroup_size:u full_subgroups:u sync:u astc:u zero:u rendering:u dot:u maintenance4:u")
Properties = ctypes.c_char * 2048  # VkPhysicalDeviceProperties, and room
properties2 = struct(1000059001, "properties:Properties")
driver_properties = struct(1000196000, "driver:u name:name info:name conformance:u")
atomic_float = struct(1000260000, "atomics:u add:u " + " ".join(f"other{k}:u" for k in range(10)))
executable_features = struct(1000269000, "info:u")
of_pipeline = struct(1000269001, "pipeline:l")
executable_info = struct(1000269002, "stages:u name:name about:name subgroup:u")
of_executable = struct(1000269003, "pipeline:l index:u")
statistic = struct(1000269004, "name:name about:name format:u value:l")
representation = struct(1000269005, "name:name about:name text:u size:n data:p")
robustness2 = struct(1000286000, "buffers:u images:u null:u")
core_features = struct(None, " ".join(f"feature{k}:u" for k in range(55)))  # the first is robustBufferAccess

vulkan = ctypes.CDLL("libvulkan.so.1")
vulkan.vkGetDeviceProcAddr.restype = ctypes.c_void_p


def check(result, what):
    if result:
        raise RuntimeError(f"{what}: VkResult {ctypes.c_int32(result).value}")


def all_of(call, of, new):
    """What a call lists: asked twice, for the number and for the items."""
    count = ctypes.c_uint32()
    check(call(device, ctypes.byref(of), ctypes.byref(count), None), "list")
    items = (new.type * count.value)(*[new() for _ in range(count.value)])
    check(call(device, ctypes.byref(of), ctypes.byref(count), items), "list")
    return items


def made(call, *arguments):
    handle = ctypes.c_uint64()
    check(call(*arguments, ctypes.byref(handle)), call.__name__)
    return handle.value


def chained(*structs):
    for one, following in zip(structs, structs[1:]):
        one.next = ctypes.addressof(following)
    return structs[0]


instance = ctypes.c_void_p(made(vulkan.vkCreateInstance, ctypes.byref(instance_info(application=application(api=(1 << 22) | (3 << 12)))), None))
physical = (ctypes.c_void_p * 8)()
number = ctypes.c_uint32(8)
check(vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(number), physical), "vkEnumeratePhysicalDevices")
if not number.value:
    sys.exit("the driver offers no device")
card = ctypes.c_void_p(physical[0])
driver = driver_properties()
vulkan.vkGetPhysicalDeviceProperties2(card, ctypes.byref(chained(properties2(), driver)))
names = [b"VK_EXT_robustness2", b"VK_KHR_pipeline_executable_properties", b"VK_EXT_shader_atomic_float"]
adds = "native" in Path(sys.argv[1]).name
names = names if adds else names[:2]
features = [executable_features(info=1), features13(subgroup_size=1, full_subgroups=1, zero=1, maintenance4=1), robustness2(buffers=1)]
queue = queue_info(count=1, priorities=(ctypes.c_float * 1)(1.0))
device = device_info(queues=1, queue=queue, extensions=len(names), names=(ctypes.c_char_p * len(names))(*names), features=core_features(feature0=1))
device = chained(device, *features, *([atomic_float(add=1)] if adds else []))
device = ctypes.c_void_p(made(vulkan.vkCreateDevice, card, ctypes.byref(device), None))
executables, statistics, representations = (
    ctypes.CFUNCTYPE(ctypes.c_uint32, *[ctypes.c_void_p] * 4)(vulkan.vkGetDeviceProcAddr(device, f"vkGetPipelineExecutable{name}KHR".encode()))
    for name in ("Properties", "Statistics", "InternalRepresentations")
)


def compiled(spirv, bindings):
    """The statistics of a text, and its machine code. Nothing is destroyed: the process ends soon."""
    module = made(vulkan.vkCreateShaderModule, device, ctypes.byref(module_info(size=len(spirv), code=ctypes.create_string_buffer(spirv, len(spirv)))), None)
    listed = [binding_info(binding=k, kind=6 if access == "u" else 7, count=1, stages=0x20) for k, access in enumerate(bindings)]
    listed = (binding_info.type * len(listed))(*listed)
    bound = made(vulkan.vkCreateDescriptorSetLayout, device, ctypes.byref(set_info(count=len(listed), bindings=listed)), None)
    layout = made(vulkan.vkCreatePipelineLayout, device, ctypes.byref(layout_info(sets=1, set=(ctypes.c_uint64 * 1)(bound))), None)
    # Any size of subgroups, as wgpu; statistics and texts of the compiler are kept.
    stage = Stage_info(flags=1, stage=0x20, module=module, entry=b"main")
    pipeline = made(vulkan.vkCreateComputePipelines, device, ctypes.c_uint64(0), 1, ctypes.byref(pipeline_info(flags=0xC0, stage=stage, layout=layout)), None)
    found, code = {}, ""
    for index, executable in enumerate(all_of(executables, of_pipeline(pipeline=pipeline), executable_info)):
        of = of_executable(pipeline=pipeline, index=index)
        found["Wave"] = executable.subgroup
        for one in all_of(statistics, of, statistic):
            value = ctypes.c_double.from_buffer_copy(ctypes.c_uint64(one.value)).value if one.format == FLOAT else one.value
            found[one.name.decode()] = value
        count = ctypes.c_uint32()
        check(representations(device, ctypes.byref(of), ctypes.byref(count), None), "list")
        texts = (representation.type * count.value)(*[representation() for _ in range(count.value)])
        for _ in range(2):  # first for the sizes, then for the texts
            check(representations(device, ctypes.byref(of), ctypes.byref(count), texts), "list")
            for text in texts:
                if not text.data:
                    room = ctypes.create_string_buffer(text.size)
                    kept.append(room)
                    text.data = ctypes.addressof(room)
        code += "".join(f";; {text.name.decode()}\n{ctypes.string_at(text.data).decode(errors='replace')}\n" for text in texts)
    return found, code


source, to = map(Path, sys.argv[1:])
to.mkdir(parents=True, exist_ok=True)
for line in (source / "texts.tsv").read_text().splitlines():
    name, _, bindings, _ = line.split("\t")
    kept.clear()
    try:
        found, code = compiled((source / f"{name}.spv").read_bytes(), [binding[0] for binding in bindings.split()])
        (to / f"{name}.txt").write_text(code)
        print(json.dumps({"name": name, "compiler": f"{driver.name.decode()} {driver.info.decode()}", "statistics": found}), flush=True)
    except RuntimeError as error:
        print(json.dumps({"name": name, "failed": str(error)}), flush=True)
