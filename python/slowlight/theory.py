"""Analytical results. Units: packets, seconds, bytes, bits per second; p is a probability.

>>> from slowlight import theory
>>> round(theory.expected_rounds(10_031, 1e-2), 2)
2.64
>>> busy = 8 * (997 + 56) / 10e6
>>> round(theory.deferred_nak_s(10_031, busy, 0.025, 0.1), 2)
9.6
"""

from slowlight.native import (
    best_payload_bits,
    coded_s,
    deferred_nak_s,
    expected_rounds,
    ideal_s,
    immediate_nak_s,
    multicast_transmissions,
    multicast_worst_losses,
    reno_bps,
    window_bps,
)

__all__ = [
    "best_payload_bits",
    "coded_s",
    "deferred_nak_s",
    "expected_rounds",
    "ideal_s",
    "immediate_nak_s",
    "multicast_transmissions",
    "multicast_worst_losses",
    "reno_bps",
    "window_bps",
]
