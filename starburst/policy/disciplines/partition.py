"""The universal partition of sizes into 2J types (section V, equation 6)."""

from __future__ import annotations

from bisect import bisect_left


class Partition:
    """Types of size; for m = 0 … J-1 and a capacity of 1,

        type 2m covers ((2/3)·2⁻ᵐ, 2⁻ᵐ] and type 2m+1 covers ((1/2)·2⁻ᵐ, (2/3)·2⁻ᵐ].

    The last type also covers all smaller sizes, which are rounded up to 2⁻ᴶ. Sizes are integers, so rounding
    the upper ends of the intervals down to integers changes no type.
    """

    def __init__(self, capacity: int, levels: int) -> None:
        """The parameter J is `levels`.

        Raises:
            ValueError: J < 2, for which the configurations of equation 7 do not serve every type.
        """
        if levels < 2:
            raise ValueError(f"the partition needs J of 2 or more, not {levels}")
        self.levels = levels
        #: The largest size of every type.
        self.tops = [end for m in range(levels) for end in (capacity >> m, 2 * capacity // (3 << m))]
        self._rising = self.tops[::-1]
        self._least = capacity >> levels

    def __len__(self) -> int:
        return 2 * self.levels

    def kind(self, size: int) -> int:
        """The type of a size."""
        return len(self.tops) - 1 - bisect_left(self._rising, size)

    def rounded(self, size: int) -> int:
        """The size that VQS reserves for a job: at least 2⁻ᴶ of the capacity."""
        return max(size, self._least)


def levels_for(smallest: int, capacity: int) -> int:
    """The least J ≥ 2 with 2⁻ᴶ of the capacity ≤ the smallest size, as theorem 3 requires."""
    levels = 2
    while smallest << levels < capacity:
        levels += 1
    return levels
