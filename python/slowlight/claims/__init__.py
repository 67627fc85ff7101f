"""Claims of papers, checked against results: the paper's statement, finding and verdict."""

from __future__ import annotations

# Each module adds its claims to its paper.
from slowlight.claims import s0 as s0
from slowlight.claims import s0_far as s0_far
from slowlight.claims import s0_others as s0_others
from slowlight.claims import s0_packets as s0_packets
from slowlight.claims import s0_worlds, s1, s2, s3, s4
from slowlight.claims import s2_packets as s2_packets
from slowlight.claims.evidence import Claim, Evidence, Finding, NotRunError, Paper, Verdict

PAPERS: dict[str, Paper] = {
    paper.name: paper for paper in (s0_worlds.PAPER, s1.PAPER, s2.PAPER, s3.PAPER, s4.PAPER)
}

__all__ = ["PAPERS", "Claim", "Evidence", "Finding", "NotRunError", "Paper", "Verdict"]
