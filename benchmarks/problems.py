"""The seven shapes of the paper's analyses, as planted problems."""

from __future__ import annotations

from dataclasses import dataclass

from mcpca.datasets import PlantedContexts, make_contexts


@dataclass(frozen=True)
class Shape:
    """p features, k contexts, rank r; rows per context, noise, and how full B is."""

    name: str
    p: int
    k: int
    r: int
    noise: float
    n_samples: int = 1000

    @property
    def density(self) -> float:
        """Share of non-zero loadings."""
        # With few contexts a sparse B has proportional columns, and no method can be right.
        return 0.2 if self.k >= 20 else 1.0

    def draw(self, seed: int) -> PlantedContexts:
        """Draw rows, labels and truth."""
        return make_contexts(
            self.k,
            self.p,
            self.r,
            n_samples=self.n_samples,
            density=self.density,
            noise=self.noise,
            random_state=seed,
        )


SHAPES = [
    Shape("Fig. 2B", 100, 50, 60, 0.0),
    Shape("TCGA", 400, 30, 30, 0.1),
    Shape("lung atlas", 400, 100, 5, 0.1),
    Shape("Perturb-seq", 100, 1872, 50, 0.1, n_samples=300),  # the paper keeps perturbations with at least 300 cells
    Shape("primates", 500, 5, 9, 0.1),
    Shape("text", 768, 12, 10, 0.1),
    Shape("MNIST", 784, 3, 17, 0.1),
]
