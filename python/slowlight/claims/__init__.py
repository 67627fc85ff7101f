"""Claims of papers, checked against results: what a paper says, what is found, and the verdict."""

from __future__ import annotations

# Each module adds the claims that it checks to its paper.
from slowlight.claims import s0 as s0
from slowlight.claims import s0_packets as s0_packets
from slowlight.claims import s0_worlds
from slowlight.claims.evidence import Claim, Evidence, Finding, NotRunError, Paper, Verdict

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (s0_worlds.PAPER,)}

__all__ = ["PAPERS", "Claim", "Evidence", "Finding", "NotRunError", "Paper", "Verdict"]
