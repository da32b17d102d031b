#!/usr/bin/env python3
"""Passes on what `cargo test` prints, and adds to the table of scripts/steps.sh the seconds of each test program, and of each test above 5 s.

Stable Rust tells no test's time. But a test program begins its tests by their names, RUST_TEST_THREADS at once, and the next one when one ends; so
the ends, which are seen here, tell the beginnings. The seconds are by the clock, beside the other test that ran, and its threads.
"""

import os, re, sys, time

LONG = 5.0
threads = int(os.environ["RUST_TEST_THREADS"])
table = open(os.environ["HOTROW_TIMES"], "a")
program, begun, ends = "", 0.0, []


def long_tests():
    """The tests above 5 s and their seconds. Nothing, if a test ended that cannot have begun: then the order is another one."""
    waiting = sorted(name for name, _ in ends)
    running = {name: begun for name in waiting[:threads]}
    del waiting[:threads]
    for name, end in ends:
        if name not in running:
            print(f"seconds.py: {program}: wanted tests by their names, found {name} early, so their times are unknown", file=sys.stderr)
            return
        if end - running[name] > LONG:
            yield end - running.pop(name), name
        if waiting:
            running[waiting.pop(0)] = end


for line in sys.stdin:
    sys.stdout.write(line)
    sys.stdout.flush()
    now = time.monotonic()
    if found := re.search(r"^\s+(?:Running (?:unittests )?(\S+) \(.*/([^/]+)-[0-9a-f]+\)|(Doc-tests \S+))", line):
        path, name, documentation = found.groups()
        program = documentation or f"{name}: {path}"
    elif re.match(r"running \d+ tests?$", line):
        begun, ends = now, []
    elif found := re.search(r"test (\S+)(?: - should panic)? \.\.\. (?:ok|FAILED|ignored)", line):
        ends.append((found[1], now))
    elif line.startswith("test result:") and ends:
        print(f"{now - begun:.0f}\tprogram\t{program}", file=table)
        if not program.startswith("Doc-tests"):
            for seconds, name in sorted(long_tests(), reverse=True):
                print(f"{seconds:.1f}\ttest\t{name}", file=table)
        table.flush()
        ends = []
