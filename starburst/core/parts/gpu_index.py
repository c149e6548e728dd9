"""Index of nodes by free GPUs, so that a placement looks only at nodes that have enough of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class GpuIndex:
    """For each number g of GPUs, the nodes with at least g free, as a bit mask over the nodes' positions.

    A full cluster is found to be full by one look-up, however many nodes it has.
    """

    def __init__(self, free: Sequence[int]) -> None:
        """`free`: free GPUs by position of the node; negative on a node that is overfull."""
        self._masks = [0] * (max(free, default=0) + 1)
        for position, gpus in enumerate(free):
            self.change(position, 0, gpus)

    def change(self, position: int, before: int, after: int) -> None:
        """The free GPUs of a node have changed."""
        if after >= len(self._masks):
            self._masks += [0] * (after + 1 - len(self._masks))
        bit = 1 << position
        for gpus in range(max(0, after) + 1, before + 1):
            self._masks[gpus] &= ~bit
        for gpus in range(max(0, before) + 1, after + 1):
            self._masks[gpus] |= bit

    def at_least(self, gpus: int) -> Iterator[int]:
        """Positions of the nodes with at least `gpus` (1 or more) free, in order."""
        mask = self._masks[gpus] if gpus < len(self._masks) else 0
        while mask:
            lowest = mask & -mask
            yield lowest.bit_length() - 1
            mask ^= lowest
