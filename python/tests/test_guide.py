"""The code of docs/python.md, block by block, as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_guide_runs(capsys):
    pytest.importorskip("torch", reason="SKIPPED: torch is not installed")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 4 and len(blocks[1].splitlines()) <= 45
    found, names = [], {}
    for block in blocks:
        if "fbgemm" in block:
            try:
                import fbgemm_gpu  # noqa: F401
            except ImportError:
                pytest.skip("SKIPPED: FBGEMM is not installed: its block of docs/python.md did not run")
        exec(compile(block, str(PAGE), "exec"), names)
        found.append(capsys.readouterr().out)
    assert found[0].startswith("4 ")
    first, last = map(float, re.search(r"loss ([\d.]+) -> ([\d.]+)", found[1]).groups())
    assert last < first - 0.03, found[1]
    for text in found[2:]:
        assert 0 <= float(re.search(r"tensor\(([\d.e-]+)", text)[1]) < 0.05, text
    print(*found)
