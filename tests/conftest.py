"""A tiny policy that the tests share: small networks, a few hundred updates on a small maze, trained once a session."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hilp
from hilp import compiler
from hilp.cli import main

# XLA's older generator of loops compiles the programs of tests in half the time; rounding aside they are the same.
QUICK_COMPILER = "--xla_cpu_use_fusion_emitters=false"
# A program in one piece: cutting it up for several threads costs a fifth more, and the workers share the cores.
ONE_PIECE = "--xla_cpu_parallel_codegen_split_count=1"
# Sums as jaxlib computes them by itself, for users' see test_compiler.py: weights are recorded with these.
OWN_SUMS = f"{compiler.FLAG}=+reduce"
TINY = {"dim": 8, "hidden": (32, 32), "actor_hidden": (32, 32), "batch": 64}
TINY_STEPS, TINY_BANK, TINY_TASK = 300, 2_000, "maze-medium"
ABLE_STEPS = 1_500


def pytest_configure(config: pytest.Config) -> None:
    """Programs are compiled once a session: compiling is most of what a tiny training run costs."""
    if (
        signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    ):  # a suite in the background: commands that it starts take it over
        signal.signal(signal.SIGINT, signal.default_int_handler)
    slow = config.option.markexpr == "slow"
    if not slow:
        use_quick_compiler()
    import jax  # behind the flags: hilp has XLA read them where JAX is there before it

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers and subprocesses take over what is set here
        folder = tempfile.TemporaryDirectory(prefix="hilp-compiled-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        cache = {"COMPILATION_CACHE_DIR": folder.name}
        cache |= {"PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0, "PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1}
        for name, value in cache.items():
            os.environ[f"JAX_{name}"] = str(value)
            jax.config.update(f"jax_{name.lower()}", value)  # JAX is imported already
    compile_well(slow)


def use_quick_compiler() -> None:
    """For this process, which has asked JAX for nothing yet, and those that it starts."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(compiler.FLAG)]
    own = [OWN_SUMS] if compiler.needed() else []
    wanted = [flag for flag in (QUICK_COMPILER, ONE_PIECE, *own) if flag not in flags]
    os.environ["XLA_FLAGS"] = " ".join([*flags, *wanted])


def pytest_collection_finish() -> None:
    """Spare the collector of garbage the modules and tests, which stay: else it walks over them while programs are
    traced, a tenth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def compile_well(well: bool) -> None:
    """Whether to compile as for users, here and in processes that are started. Nearly all programs of tests run for
    milliseconds: compiling them well takes far longer than running them badly.
    """
    import jax

    jax.config.update("jax_disable_most_optimizations", not well)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(not well))


@contextmanager
def compiled_well() -> Iterator[None]:
    """For a thousand updates and more."""
    before = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0"
    compile_well(True)
    try:
        yield
    finally:
        compile_well(before)


MAPPED = 15_000  # pieces of memory that a worker may hold: each program has some, and Linux ends who asks for 65,530
LOOK_EVERY = 25  # tests
_tests = itertools.count(1)


def mapped() -> int:
    """Pieces of memory that this process holds; 0 where the system does not tell."""
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture(autouse=True)
def few_programs() -> Iterator[None]:
    """Drops compiled programs when they are many; those needed again come from the cache on disk."""
    yield
    if next(_tests) % LOOK_EVERY == 0 and mapped() > MAPPED:
        import jax

        jax.clear_caches()
        gc.collect()


@contextmanager
def shared_folder(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder that all workers share, held by one of them: of several one fills it, the others wait."""
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def tiny_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 transitions in the medium maze. Not to be changed."""
    with shared_folder(tmp_path_factory, "tiny-data") as folder:
        data = folder / "data"
        if not data.exists():  # which takes its name when it is whole
            hilp.collect(TINY_TASK, "navigate", 20_000).save(data)
    return data


@pytest.fixture(scope="session")
def tiny_data(tiny_data_folder: Path) -> hilp.Dataset:
    return hilp.load(tiny_data_folder)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: hilp.Dataset) -> Path:
    """The folder of a finished run. Not to be changed: tests that do take `run_copy`."""
    with shared_folder(tmp_path_factory, "tiny-run") as folder:
        if not (folder / "run" / "policy" / "config.json").exists():
            config = replace(hilp.preset("hilp", "laptop").config, **TINY)
            hilp.pretrain(config, tiny_data, steps=TINY_STEPS, out=folder / "run", bank=TINY_BANK, quiet=True)
    return folder / "run"


@pytest.fixture(scope="session")
def tiny(tiny_run: Path) -> hilp.FoundationPolicy:
    """The policy of that run, as a user loads it."""
    return hilp.FoundationPolicy.load(tiny_run)


@pytest.fixture(scope="session")
def able_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: hilp.Dataset) -> Path:
    """A run as small as that, but long enough to reach goals of the whole maze. Not to be changed."""
    with shared_folder(tmp_path_factory, "able-run") as folder:
        if not (folder / "run" / "policy" / "config.json").exists():
            config = replace(hilp.preset("hilp", "laptop").config, **TINY)
            with compiled_well():
                hilp.pretrain(config, tiny_data, steps=ABLE_STEPS, out=folder / "run", bank=TINY_BANK, quiet=True)
    return folder / "run"


@pytest.fixture
def run_copy(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the run for tests that damage or add to it."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture(scope="session")
def change() -> Callable[..., hilp.FoundationPolicy]:
    """Makes a policy with some parts of another one replaced."""

    def changed(policy: hilp.FoundationPolicy, **parts: Any) -> hilp.FoundationPolicy:
        names = ("config", "spec", "core", "preparation", "bank", "provenance", "graph")
        parts = {"graph": None, **parts} if "bank" in parts else parts  # whose landmarks are states of the bank
        return hilp.FoundationPolicy(**{name: parts.get(name, getattr(policy, name)) for name in names})

    return changed


@pytest.fixture(scope="session")
def other(tiny: hilp.FoundationPolicy, change: Callable[..., hilp.FoundationPolicy]) -> hilp.FoundationPolicy:
    """Another policy: the same but for its normaliser."""
    return change(tiny, preparation=replace(tiny.preparation, mean=tiny.preparation.mean + 1))


# ---- the command line ------------------------------------------------------------------------------------------------

Result = tuple[int, str, str]
Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`hilp` in this process: exit code, stdout, stderr."""

    def call(*words: object) -> Result:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Callable[..., str]:
    """A mistake: exit code 2, nothing on stdout, one line on stderr, and everything in tmp_path as it was."""

    def call(*words: object) -> str:
        before = tree(tmp_path)
        code, out, err = run(*words)
        assert code == 2 and out == ""
        assert re.fullmatch(r"hilp: error: [^\n]+\n", err), err
        assert tree(tmp_path) == before, "nothing half-written"
        return err

    return call
