"""A set of integers that finds neighbours: the next member at or above a number, at or below it."""

from __future__ import annotations

#: A word of the tree is a Python integer of 1024 bits; three levels hold a thousand million numbers.
BITS = 10
MASK = (1 << BITS) - 1


class IntSet:
    """Members between 0 and `top`. Every call takes O(log top / BITS) word operations, and only words that
    are not zero take memory."""

    def __init__(self, top: int) -> None:
        self._levels: list[dict[int, int]] = [{}]
        while top := top >> BITS:
            self._levels.append({})

    def add(self, member: int) -> None:
        """Put in; it may be there already."""
        for words in self._levels:
            word = words.get(member >> BITS, 0)
            words[member >> BITS] = word | 1 << (member & MASK)
            if word:
                return
            member >>= BITS

    def remove(self, member: int) -> None:
        """Take out; it must be there."""
        for words in self._levels:
            word = words[member >> BITS] ^ 1 << (member & MASK)
            if word:
                words[member >> BITS] = word
                return
            member >>= BITS
            del words[member]

    def at_least(self, number: int) -> int | None:
        """The smallest member ≥ number."""
        for level, words in enumerate(self._levels):
            word = words.get(number >> BITS, 0) >> (number & MASK)
            if word:
                number += (word & -word).bit_length() - 1
                for below in reversed(self._levels[:level]):
                    word = below[number]
                    number = (number << BITS) + (word & -word).bit_length() - 1
                return number
            number = (number >> BITS) + 1
        return None

    def at_most(self, number: int) -> int | None:
        """The largest member ≤ number."""
        for level, words in enumerate(self._levels):
            if number < 0:
                return None
            word = words.get(number >> BITS, 0) & ((2 << (number & MASK)) - 1)
            if word:
                number = number - (number & MASK) + word.bit_length() - 1
                for below in reversed(self._levels[:level]):
                    number = (number << BITS) + below[number].bit_length() - 1
                return number
            number = (number >> BITS) - 1
        return None
