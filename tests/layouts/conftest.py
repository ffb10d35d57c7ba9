"""torch and Triton are optional: their tests are part of the run where they are installed."""

from importlib.util import find_spec

collect_ignore = [
    file
    for file, needs in (("test_torch.py", "torch"), ("test_triton.py", "triton"))
    if find_spec("torch") is None or find_spec(needs) is None
]
