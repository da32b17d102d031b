"""The code of docs/python.md, block by block, as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_guide_runs(capsys):
    pytest.importorskip("torch", reason="SKIPPED: torch is not installed")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 6 and len(blocks[1].splitlines()) <= 45
    found, names = [], {}
    for block in blocks:
        if "fbgemm" in block:
            try:
                import fbgemm_gpu  # noqa: F401
            except ImportError:
                pytest.skip("SKIPPED: FBGEMM is not installed: its block of docs/python.md did not run")
        exec(compile(block, str(PAGE), "exec"), names)
        if "print" not in block:
            continue  # functions, which test_torch_step.py calls
        text = capsys.readouterr().out
        found.append(text)
        if len(found) == 1:
            assert text.startswith("4 ")
        elif len(found) == 2:
            first, last = map(float, re.search(r"loss ([\d.]+) -> ([\d.]+)", text).groups())
            assert last < first - 0.03, text
        else:
            assert 0 <= float(re.search(r"tensor\(([\d.e-]+)", text)[1]) < 0.05, text
    print(*found)
