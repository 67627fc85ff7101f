"""A CFDP entity over UDP, built on LibreCube's PyPI package cfdp (see arguments.py)."""

from __future__ import annotations

import functools
import os
import socket
import sys
import threading
import time
from typing import Any

import cfdp
import cfdp.core
from arguments import Arguments, Pace, arguments, report
from cfdp.filestore import NativeFileStore
from cfdp.transport.udp import UdpTransport

# Overhead of a file data PDU in bytes: the header with one-byte identifiers, the offset.
FILE_DATA_OVERHEAD = 4 + 3 + 4


class Transport(UdpTransport):
    """The package's own UDP transport, paced, with large socket buffers."""

    def __init__(self, given: Arguments) -> None:
        super().__init__(routing={"*": [given.peer]})
        self.pace = Pace(given.rate_bps)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, 4 << 20)

    def request(self, pdu: bytes) -> None:
        super().request(pdu)
        self.pace.sent(len(pdu))


class Entity(cfdp.CfdpEntity):
    """Records the end of the transfer."""

    def __init__(self, given: Arguments, transport: Transport) -> None:
        root = given.path if given.role == "recv" else given.path.parent
        self.ended = threading.Event()
        self.complete = False
        super().__init__(
            entity_id=given.entity,
            filestore=NativeFileStore(str(root)),
            transport=transport,
            transaction_finished_indication_required=True,
            # On loopback a second is long. The limits allow for many lost acknowledgments.
            positive_ack_timer_interval=1,
            positive_ack_timer_expiration_limit=10,
            nak_timer_interval=1,
            nak_timer_expiration_limit=20,
        )

    def transaction_finished_indication(
        self,
        transaction_id: Any,
        condition_code: Any,
        file_status: Any,
        delivery_code: Any,
        filestore_responses: Any = None,
        status_report: Any = None,
    ) -> None:
        print(f"librecube: {condition_code=} {delivery_code=}", file=sys.stderr)
        # A sender's delivery code stays "incomplete" in this package, so only its condition counts.
        self.complete = condition_code == cfdp.ConditionCode.NO_ERROR
        self.ended.set()


def main() -> int:
    given = arguments()
    if given.role == "recv":
        given.path.mkdir(parents=True, exist_ok=True)
    # The segment size is only a default argument of the transaction.
    cfdp.core.Transaction = functools.partial(
        cfdp.core.Transaction, maximum_file_segment_length=given.datagram - FILE_DATA_OVERHEAD
    )
    transport = Transport(given)
    entity = Entity(given, transport)
    transport.bind(*given.bind)
    start = time.monotonic()
    if given.role == "recv":
        print("ready", flush=True)
    else:
        entity.put(
            destination_id=given.remote,
            source_filename=given.path.name,
            destination_filename=given.name,
            transmission_mode=(
                cfdp.TransmissionMode.UNACKNOWLEDGED
                if given.cfdp_class == 1
                else cfdp.TransmissionMode.ACKNOWLEDGED
            ),
        )
    ended = entity.ended.wait(given.timeout_s)
    report(time.monotonic() - start)
    if ended and given.role == "recv" and given.cfdp_class == 2:
        # The indication comes with the Finished PDU; wait until that is acknowledged.
        for machine in list(entity.machines.values()):
            for _ in range(100):
                if entity.is_complete(machine.transaction.id):
                    break
                threading.Event().wait(0.05)
    sys.stdout.flush()
    sys.stderr.flush()
    # The package's threads do not end by themselves.
    os._exit(0 if ended and entity.complete else 1)


if __name__ == "__main__":
    main()
