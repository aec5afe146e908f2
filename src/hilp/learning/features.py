"""The table of features phi: how each learner trains them. Successor features and the IQL baselines both read it.

A learner is a network and, for some, a head that is only there to teach it. Hilbert features are an ensemble of two
(the first one is phi) with a target; the other learners rescale phi to norm sqrt(dim) and need no target.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from hilp.learning import hilbert, images, losses, networks
from hilp.learning.configs import Info
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.trees import Tree

Kind = Literal["hilbert", "lap", "fdm", "ae", "idm", "cl", "rand"]
WITH_GOALS = ("hilbert", "cl")  # learners that need a goal with the transition


class Phi(NamedTuple):
    nets: tuple[networks.Feature, ...]
    teacher: Any  # a decoder or a second feature map; () where there is none


def init(cfg: Any, spec: Spec, key: Array) -> Phi:
    key_nets, key_teacher = jax.random.split(key)
    count = 2 if cfg.features == "hilbert" else 1
    sizes = (images.layout(cfg, spec), cfg.phi_hidden, cfg.dim)
    nets = tuple(networks.Feature(*sizes, k) for k in jax.random.split(key_nets, count))
    obs, act, dim, hidden = spec.observation_dim, spec.action_dim, cfg.dim, cfg.phi_hidden
    teachers: dict[str, Callable[[], Any]] = {
        "ae": lambda: networks.Mlp(dim, hidden, obs, key_teacher),
        "idm": lambda: networks.Mlp(2 * dim, hidden, act, key_teacher),
        "fdm": lambda: networks.Mlp(dim + act, hidden, obs, key_teacher),
        "cl": lambda: networks.Feature(*sizes, key_teacher),
    }
    return Phi(nets, teachers[cfg.features]() if cfg.features in teachers else ())


def encode(kind: Kind, phi: Phi, observation: Tree) -> Array:
    """phi(s), the features that skills are inner products with."""
    return scale(kind, phi.nets[0](observation))


def scale(kind: Kind, latent: Array) -> Array:
    """Hilbert distances need their scale; all other features live on the sphere of radius sqrt(dim)."""
    return latent if kind == "hilbert" else sphere(latent)


def sphere(x: Array) -> Array:
    """x rescaled to norm sqrt(dim)."""
    return jnp.sqrt(x.shape[-1]) * hilbert.unit(x)


def loss(phi: Phi, cfg: Any, target: Phi, batch: Batch) -> tuple[Array, Info]:
    """The loss that trains phi; `target` matters to Hilbert features only."""
    value, info = LOSSES[cfg.features](phi, cfg, target, batch)
    return value, {"phi_loss": value, **info}


def hilbert_loss(phi: Phi, cfg: Any, target: Phi, batch: Batch) -> tuple[Array, Info]:
    """|phi(s) - phi(g)| is the number of steps from s to g (Eq. 6)."""
    s, next_s, g = batch.observation, batch.next_observation, batch.goal
    v = jnp.stack([hilbert.value(net(s), net(g)) for net in phi.nets])  # ensemble x batch
    old_g = [net(g) for net in target.nets]
    old_v = jnp.stack([hilbert.value(net(s), at_g) for net, at_g in zip(target.nets, old_g, strict=True)])
    old_next_v = jnp.stack([hilbert.value(net(next_s), at_g) for net, at_g in zip(target.nets, old_g, strict=True)])
    value = hilbert.representation_loss(v, old_v, old_next_v, batch.reached, cfg.phi_discount, cfg.phi_expectile)
    return value, {"distance": -jnp.mean(v)}


def laplacian_loss(phi: Phi, cfg: Any, target: Phi, batch: Batch) -> tuple[Array, Info]:
    """Eigenfunctions of the graph Laplacian: neighbours are alike, features are orthonormal."""
    here, there = encode("lap", phi, batch.observation), encode("lap", phi, batch.next_observation)
    smooth = jnp.mean(jnp.square(here - there))
    return smooth + losses.orthonormal(here), {"smoothness": smooth}


def autoencoder_loss(phi: Phi, cfg: Any, target: Phi, batch: Batch) -> tuple[Array, Info]:
    """phi(s) keeps what is needed to rebuild s."""
    rebuilt = phi.teacher(encode("ae", phi, batch.observation))
    return jnp.mean(jnp.square(rebuilt - networks.join(batch.observation))), {}


def inverse_loss(phi: Phi, cfg: Any, target: Phi, batch: Batch) -> tuple[Array, Info]:
    """phi(s), phi(s') keep what is needed to predict the action between them."""
    pair = [encode("idm", phi, batch.observation), encode("idm", phi, batch.next_observation)]
    action = jnp.tanh(phi.teacher(jnp.concatenate(pair, axis=-1)))
    return jnp.mean(jnp.square(action - batch.action)), {}


def forward_loss(phi: Phi, cfg: Any, target: Phi, batch: Batch) -> tuple[Array, Info]:
    """phi(s) and the action foretell s'."""
    known = jnp.concatenate([encode("fdm", phi, batch.observation), batch.action], axis=-1)
    return jnp.mean(jnp.square(phi.teacher(known) - networks.join(batch.next_observation))), {}


def contrastive_loss(phi: Phi, cfg: Any, target: Phi, batch: Batch) -> tuple[Array, Info]:
    """phi(s) is nearest to mu of its own future among the futures of the batch."""
    logits = hilbert.unit(phi.nets[0](batch.observation)) @ hilbert.unit(phi.teacher(batch.goal)).T  # batch x batch
    return losses.contrastive(logits), {}


LOSSES: dict[str, Callable[[Phi, Any, Phi, Batch], tuple[Array, Info]]] = {
    "hilbert": hilbert_loss,
    "lap": laplacian_loss,
    "ae": autoencoder_loss,
    "idm": inverse_loss,
    "fdm": forward_loss,
    "cl": contrastive_loss,
    "rand": lambda *_: (jnp.zeros(()), {}),  # random features stay as they were drawn
}


def skill_of_feature(feature: Array, moment: Array) -> Array:
    """The skill of the task "be where the feature is this": sqrt(dim) * unit(C^-1 x), C the second moment."""
    return sphere(feature @ inverse(moment))


def inverse(moment: Array) -> Array:
    """The pseudo-inverse of a second moment, cut at dim * eps of the largest eigenvalue, as in the authors' code.

    XLA's own default cuts ten times higher, where features of a low-dimensional world still point somewhere.
    """
    cut = moment.shape[-1] * float(jnp.finfo(moment.dtype).eps)
    return jnp.linalg.pinv(moment, rtol=cut, hermitian=True)
