"""The compiler under JAX computes what it is told, on whatever jaxlib is installed, as users run hilp."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hilp import compiler

# Row 32,768 was wrong (jax issue 39103), and the second product crashed (jax issue 39257).
PRODUCTS = """
import jax, numpy as np
import jax.numpy as jnp

x = np.zeros((32_769, 3), np.float32)
x[:, 0] = np.arange(len(x))
found = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))(x)
np.testing.assert_allclose(found, x[:, 0] ** 2, rtol=1e-6)
ones = np.ones((3, 1, 2, 2, 8, 8, 8), np.float32)
np.testing.assert_array_equal(jax.jit(lambda a, b: jnp.sum(a * b, axis=3))(ones, ones), 2.0)
"""


def run(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Code in a process that is set up as a user's is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_", "OPENBLAS_"))}
    return subprocess.run([sys.executable, "-c", code], env={**own, **settings}, capture_output=True, text=True)


@pytest.mark.parametrize("imports", ["import hilp", "import jax, hilp"])
def test_sums_of_products_are_right(imports: str) -> None:
    done = run(f"{imports}\n{PRODUCTS}")
    assert done.returncode == 0, done.stderr
    assert "wrong sums" not in done.stderr


def test_flags_of_a_user_are_kept() -> None:
    shown = "import os, hilp\nprint(os.environ['XLA_FLAGS'])"
    own = f"{compiler.FLAG}="
    assert run(shown, XLA_FLAGS=own).stdout.strip() == own
    other = "--xla_cpu_max_isa=AVX2"
    flags = f"{other} {compiler.FLAG}=-reduce" if compiler.needed() else other
    assert run(shown, XLA_FLAGS=other).stdout.strip() == flags


@pytest.mark.skipif(not compiler.needed(), reason="this jaxlib is not known to be wrong")
def test_too_late_is_said() -> None:
    done = run("import jax\njax.devices()\nimport hilp, os\nprint('XLA_FLAGS' in os.environ)")
    assert "import hilp before JAX computes" in done.stderr and done.stdout.strip() == "False"


@pytest.mark.skipif(not compiler.needed(), reason="this jaxlib is not known to be wrong")
@pytest.mark.parametrize("imports", ["import hilp, hilp.policy.policy", "import jax, hilp"])
def test_other_processes_do_not_get_the_flag(imports: str) -> None:
    """Another jaxlib may not know it, and XLA ends a process for such a flag."""
    shown = "import os\nfrom hilp import versions\nprint(os.environ.get('XLA_FLAGS'), versions.machine()['settings'])"
    done = run(f"{imports}\n{shown}\n{PRODUCTS}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"None {{'XLA_FLAGS': '{compiler.FLAG}=-reduce'}}"
    assert run(f"{imports}\n{shown}", XLA_FLAGS="--xla_cpu_max_isa=AVX2").stdout.startswith("--xla_cpu_max_isa=AVX2 {")
