"""Prods in words: who asks, what each plan of several keeps and tells, and what an autopilot does."""

from __future__ import annotations

from panewise.spec.explain_progress import lined
from panewise.spec.frames import RowWindows, TupleWindows, Windows
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import InBandProds, Prodder, Prods, ProdStream

__all__ = ["explain_prods"]

_TOPMOST = "topmost: keeps its state; the answer is made from a copy, as if the stream ended here"
_ACCUMULATOR = (
    "accumulator: keeps its state; what is open it tells the next plan for this answer only, and none of it is merged "
    "into the state there"
)
_PANES = "; panes are combined for the answer and stay where they are, so that nothing is counted twice"


def explain_prods(plan: PlanSpec, given: Prods) -> str:
    """What a prod does to a plan."""
    chain = plan.chain()
    lines = [("Prods", "; ".join(_asked(given)))]
    for i, each in enumerate(chain):
        named = "State" if len(chain) == 1 else f"State, plan {i + 1}"
        rule = _TOPMOST if i == len(chain) - 1 else _ACCUMULATOR
        lines.append((named, rule + (_PANES if _has_panes(each) else "")))
    lines.append(("Answers", "early ones are numbered, final ones come when they would have come, with their accuracy"))
    if not isinstance(chain[-1].scheme, (Windows, RowWindows, TupleWindows)):
        lines.append(("Certain", "what is sure to become a segment; what rows to come may still undo is told as such"))
    if given.prodder is not None and given.prodder.hold_accuracy is not None:
        lines.append(("Autopilot", _autopilot(given.prodder)))
    return lined(lines)


def _asked(given: Prods) -> list[str]:
    found = ["asked for by a person, through the control folder"]
    for source in (given.in_band, given.stream, given.prodder):
        match source:
            case InBandProds():
                of = ", of its key" if source.per_key else ""
                found.append(f"by rows where {source.condition}, which are no data{of}")
            case ProdStream():
                of = f", of {', '.join(source.keys)}" if source.keys else ""
                until = "" if source.time is None else f", up to {source.time}"
                found.append(f"by the rows of another stream{until}{of}")
            case Prodder(aggressiveness=None):
                found.append(f"by the clock, every {source.every}")
            case Prodder(aggressiveness=float(share)):
                side = "before" if share > 0 else "after"
                found.append(f"by the clock, once in every {source.every}, {abs(share):.0%} of it {side} its end")
    return found


def _autopilot(prodder: Prodder) -> str:
    low, high = prodder.bounds
    return (
        f"moves that share between {low:.0%} and {high:.0%}, so that the aggregate that does worst has a mean accuracy "
        f"of {prodder.hold_accuracy:.1%}"
    )


def _has_panes(plan: PlanSpec) -> bool:
    scheme = plan.scheme
    return isinstance(scheme, (Windows, RowWindows)) and scheme.range != scheme.slide
