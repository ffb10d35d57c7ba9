"""Mutated bundles: opened and reported on, they may raise the package's own errors, and touch no file.

    python tests/fuzz/bundles.py --count 5000 --seed 1 [FILE.asml ...]

Half of them are archives with bytes changed; in the others the archive is sound and what is in it is not: values of the
manifest, names that lead elsewhere, sizes that lie, far too much data.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import io
import json
import os
import random
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.mutate import FIXTURES, attempt, mutate

from asmlaunch import codeobject
from asmlaunch.validate.bundle import Bundle, Stored
from asmlaunch.validate.report import report
from asmlaunch.validate.report_html import html

#: What a value of the manifest is replaced by.
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 31, 1 << 63, 1 << 70, 1.5, float("nan"), "", "x" * 10_000, "../../../etc/passwd", "\0",
    "\ud800", "<script>alert(1)</script>", [], [[]], [1] * 100, {}, {"a": {}},
)  # fmt: skip

#: Names that no bundle has.
NAMES = (
    "../escaped", "/tmp/escaped", "buffers/../../escaped", "buffers\\..\\escaped", "C:/escaped", "object.co/x", "",
    "buffers/0.before/", "BUFFERS/0.before", "buffers/9999.before", "manifest.json\0.txt", "__pycache__/x.py", "x.pkl",
)  # fmt: skip


def use(data: bytes) -> None:
    """Open a bundle, and make everything of it that is made without running it."""
    bundle = Bundle.load(data)
    found = report(bundle, comparing=False)
    json.dumps(found.as_dict())
    html(found)
    bundle.launch()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sample() -> bytes:
    """A bundle of a fixture."""
    image = (FIXTURES / "codeobject" / "two_kernels_v5.co").read_bytes()
    before, after = bytes(range(256)), bytes(256)
    stored = (
        Stored("a", 0x1000, 256, before, before, digest(before), digest(before)),
        Stored("b", 0x2000, 256, before, after, digest(before), digest(after)),
    )
    name = next(iter(codeobject.read(image).kernels))
    made = Bundle(
        name, image, digest(image), "two.co", bytes(64), (1, 1, 1), (64, 1, 1), 0, {"threads": 1, "checks": "all"},
        stored, "f4gemm", "m=32, n=128, k=256", (), "emulator",
        {"findings": ["none"], "fidelity": {"instructions": {"vector": 3}, "exact": 3}, "error": None},
    )  # fmt: skip
    memory = io.BytesIO()
    made.save(memory)  # type: ignore[arg-type]
    return memory.getvalue()


def contents(data: bytes) -> dict[str, bytes]:
    """Entries of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(entries: Sequence[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of these entries, names twice among them."""
    memory = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(memory, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, one in entries:
            archive.writestr(zipfile.ZipInfo(name), one, method)
    return memory.getvalue()


def crafted(data: bytes, rng: random.Random) -> bytes:
    """A sound archive of something else."""
    entries = contents(data)
    kind = rng.randrange(8)
    if kind in (0, 1, 2, 6, 7):
        manifest = json.loads(entries["manifest.json"])
        if kind == 6 and "object.co" in entries:
            entries["object.co"] = mutate(entries["object.co"], rng)
            entries["kernarg.bin"] = mutate(entries["kernarg.bin"], rng)
            manifest["object_sha256"] = digest(entries["object.co"])
        for _ in range(rng.randint(1, 3)):
            _replace(manifest["result"] if kind >= 6 else manifest, rng)
        text = json.dumps(manifest)
        entries["manifest.json"] = text.encode("utf-8", "surrogatepass")
    elif kind == 3:
        name = rng.choice(NAMES)
        entries = {name if key == rng.choice(list(entries)) else key: one for key, one in entries.items()} | {
            name: b"x"
        }
    elif kind == 4:
        name = rng.choice(list(entries))
        return packed([*entries.items(), (name, mutate(entries[name].ljust(16), rng))])
    else:
        name = rng.choice(list(entries))
        entries[name] = rng.choice((b"", b"[" * 100_000, b"9" * 100_000, bytes(1 << 22), entries[name][:-1]))
    return packed(
        list(entries.items()),
        zipfile.ZIP_BZIP2 if rng.random() < 0.02 else rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)),
    )


def _replace(value: Any, rng: random.Random) -> None:
    """Replace, or take away, something somewhere in a nested value."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    if not keys:
        return
    key = rng.choice(list(keys))
    if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.7:
        _replace(value[key], rng)
    elif rng.random() < 0.1:
        del value[key]
    else:
        value[key] = copy.deepcopy(rng.choice(VALUES))


#: What nothing that reads a bundle may do.
_EVENTS = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "pickle.find_class",
)


class Watch:
    """Notes files that are opened for writing, made or removed, and programs that are started."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.on = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
            # Python writes its own compiled modules when something is imported for the first time.
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and "__pycache__" not in str(arguments[0]):
                self.seen.append(f"open {arguments[0]}")
        elif event in _EVENTS and "__pycache__" not in str(arguments):
            self.seen.append(f"{event} {arguments}")


WATCH = Watch()


def campaign(count: int, seed: int, bundles: Sequence[bytes] = ()) -> Iterator[str]:
    """How each of ``count`` mutated bundles ended.

    Raises:
        AssertionError: one touched a file, or raised another error than the package's.
    """
    rng = random.Random(seed)
    inputs = [sample(), *bundles]
    for one in inputs:
        use(one)  # what is imported for it is imported now
    for number in range(count):
        one = rng.choice(inputs)
        data = mutate(one, rng) if number % 2 else crafted(one, rng)
        WATCH.seen, WATCH.on = [], True
        try:
            yield attempt(use, data)
        except Exception as error:
            raise AssertionError(f"seed {seed}, input {number}: {error!r}") from error
        finally:
            WATCH.on = False
        assert not WATCH.seen, f"seed {seed}, input {number}: {WATCH.seen}"


def main() -> None:
    """Run a campaign and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("bundles", nargs="*", type=Path)
    options = parser.parse_args()
    bundles = [path.read_bytes() for path in options.bundles]
    for outcome, times in sorted(Counter(campaign(options.count, options.seed, bundles)).items()):
        print(f"{outcome:20s} {times}")
    print("nothing but the package's errors, no file touched", file=sys.stderr)


if __name__ == "__main__":
    main()
