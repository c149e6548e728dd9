"""The reduced set of server configurations and the one of maximum weight (section V, equations 7 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: The type of sizes in (1/2, 2/3], which has a slot of its own in half of the configurations.
LARGE = 1


class Configuration(NamedTuple):
    """Slots of a server: at most one for type 1, and several for one other type."""

    large: int
    kind: int
    slots: int

    def weight(self, waiting: Sequence[int]) -> int:
        """Inner product ⟨k, Q⟩ of the slots and the numbers of waiting jobs per type."""
        return self.large * waiting[LARGE] + self.slots * waiting[self.kind]


def reduced(levels: int) -> list[Configuration]:
    """The 4J - 4 configurations for J levels, where e_j is a slot of type j:

    2ᵐ e_2m; 3·2ᵐ⁻¹ e_2m+1; e_1 + ⌊2ᵐ/3⌋ e_2m; e_1 + 2ᵐ⁻¹ e_2m+1.
    """
    return [
        *(Configuration(0, 2 * m, 2**m) for m in range(levels)),
        *(Configuration(0, 2 * m + 1, 3 * 2 ** (m - 1)) for m in range(1, levels)),
        *(Configuration(1, 2 * m, 2**m // 3) for m in range(2, levels)),
        *(Configuration(1, 2 * m + 1, 2 ** (m - 1)) for m in range(1, levels)),
    ]


def heaviest(configurations: Sequence[Configuration], waiting: Sequence[int]) -> tuple[int, Configuration]:
    """The largest weight, and the first configuration that attains it."""
    large = waiting[LARGE]
    best, chosen = -1, configurations[0]
    for configuration in configurations:
        one, kind, slots = configuration
        weight = one * large + slots * waiting[kind]
        if weight > best:
            best, chosen = weight, configuration
    return best, chosen
