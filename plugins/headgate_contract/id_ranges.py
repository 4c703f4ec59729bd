"""A set of checkpoint ids as ranges without a gap: a stream's ids are nearly all in one, however old it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from headgate_contract.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Span:
    """The ids from `first` to `last`, both included."""

    first: int
    last: int


class IdRanges(Set[CheckpointId]):
    """Immutable; equal to any set of the same ids. What it costs goes by its spans, not by its ids."""

    __slots__ = ("spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        joined: list[Span] = []
        for span in sorted(spans, key=lambda span: span.first):
            if joined and span.first <= joined[-1].last + 1:
                joined[-1] = Span(joined[-1].first, max(joined[-1].last, span.last))
            else:
                joined.append(span)
        self.spans = tuple(joined)

    @classmethod
    def of(cls, ids: Iterable[int]) -> IdRanges:
        return cls(Span(id, id) for id in map(int, ids))

    @classmethod
    def _from_iterable(cls, ids: Iterable[CheckpointId]) -> IdRanges:  # type: ignore[override] # what `Set` calls
        return cls.of(ids)

    @property
    def highest(self) -> int:
        """The highest id, or 0 when there is none."""
        return self.spans[-1].last if self.spans else 0

    def up_to(self, id: int) -> IdRanges:
        """Those that are not above `id`."""
        return IdRanges(Span(span.first, min(span.last, id)) for span in self.spans if span.first <= id)

    def within(self, spans: int) -> IdRanges:
        """These ids in so many spans; if they have more, whatever lies between the first and the last as well."""
        if len(self.spans) <= spans:
            return self
        return IdRanges([Span(self.spans[0].first, self.spans[-1].last)])

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, int):
            return False
        at = bisect_right(self.spans, id, key=lambda span: span.first)
        return at > 0 and id <= self.spans[at - 1].last

    def __iter__(self) -> Iterator[CheckpointId]:
        return (CheckpointId(id) for span in self.spans for id in range(span.first, span.last + 1))

    def __len__(self) -> int:
        return sum(span.last - span.first + 1 for span in self.spans)

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __or__(self, other: Set[object]) -> IdRanges:
        return IdRanges([*self.spans, *ranges_of(other).spans])

    def __sub__(self, other: Set[object]) -> IdRanges:
        left: list[Span] = []
        cuts = iter(ranges_of(other).spans)
        cut = next(cuts, None)
        for span in self.spans:
            first = span.first
            while cut is not None and cut.first <= span.last:
                if cut.last < first:
                    cut = next(cuts, None)
                    continue
                if first < cut.first:
                    left.append(Span(first, cut.first - 1))
                first = cut.last + 1
                if cut.last > span.last:
                    break  # it reaches into the next one
                cut = next(cuts, None)
            if first <= span.last:
                left.append(Span(first, span.last))
        return IdRanges(left)

    def __le__(self, other: Set[object]) -> bool:
        return not self - ranges_of(other) if isinstance(other, IdRanges) else super().__le__(other)

    def __eq__(self, other: object) -> bool:
        return self.spans == other.spans if isinstance(other, IdRanges) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment] # as that of a set: it is compared with sets

    def __repr__(self) -> str:
        return f"IdRanges({', '.join(f'{span.first}-{span.last}' for span in self.spans)})"


def ranges_of(ids: Iterable[object]) -> IdRanges:
    """These ids, in ranges."""
    return ids if isinstance(ids, IdRanges) else IdRanges.of(id for id in ids if isinstance(id, int))
