"""A CFDP entity over UDP, built on the PyPI package cfdp-py (see arguments.py)."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from arguments import Arguments, Pace, arguments, report
from cfdppy import CfdpUserBase
from cfdppy.defs import CfdpState
from cfdppy.handler.dest import DestHandler
from cfdppy.handler.source import SourceHandler
from cfdppy.mib import (
    CheckTimerProvider,
    DefaultFaultHandlerBase,
    EntityType,
    IndicationConfig,
    LocalEntityConfig,
    RemoteEntityConfig,
    RemoteEntityConfigTable,
)
from cfdppy.request import PutRequest
from spacepackets.cfdp import ChecksumType, ConditionCode, DeliveryCode, TransmissionMode
from spacepackets.cfdp.pdu.helper import PduFactory
from spacepackets.countdown import Countdown
from spacepackets.seqcount import SeqCountProvider
from spacepackets.util import ByteFieldU16, UnsignedByteField


class Faults(DefaultFaultHandlerBase):
    """Prints faults."""

    def notice_of_suspension_cb(self, transaction_id: Any, cond: Any, progress: int) -> None:
        print(f"cfdp-py: suspended: {cond!r} at {progress}", file=sys.stderr)

    def notice_of_cancellation_cb(self, transaction_id: Any, cond: Any, progress: int) -> None:
        print(f"cfdp-py: cancelled: {cond!r} at {progress}", file=sys.stderr)

    def abandoned_cb(self, transaction_id: Any, cond: Any, progress: int) -> None:
        print(f"cfdp-py: abandoned: {cond!r} at {progress}", file=sys.stderr)

    def ignore_cb(self, transaction_id: Any, cond: Any, progress: int) -> None:
        print(f"cfdp-py: ignored: {cond!r} at {progress}", file=sys.stderr)


class User(CfdpUserBase):
    """Records the end of the transfer."""

    def __init__(self) -> None:
        super().__init__()
        self.complete: bool | None = None

    def transaction_finished_indication(self, params: Any) -> None:
        finished = params.finished_params
        print(f"cfdp-py: {finished}", file=sys.stderr)
        self.complete = (
            finished.condition_code == ConditionCode.NO_ERROR
            and finished.delivery_code == DeliveryCode.DATA_COMPLETE
        )

    def abandoned_indication(self, transaction_id: Any, cond_code: Any, progress: int) -> None:
        self.complete = False

    def transaction_indication(self, transaction_indication_params: Any) -> None: ...
    def eof_sent_indication(self, transaction_id: Any) -> None: ...
    def metadata_recv_indication(self, params: Any) -> None: ...
    def file_segment_recv_indication(self, params: Any) -> None: ...
    def report_indication(self, transaction_id: Any, status_report: Any) -> None: ...
    def suspended_indication(self, transaction_id: Any, cond_code: Any) -> None: ...
    def resumed_indication(self, transaction_id: Any, progress: int) -> None: ...
    def fault_indication(self, transaction_id: Any, cond_code: Any, progress: int) -> None: ...
    def eof_recv_indication(self, transaction_id: Any) -> None: ...


class CheckTimers(CheckTimerProvider):
    """One second: loopback has no delay."""

    def provide_check_timer(
        self,
        local_entity_id: UnsignedByteField,
        remote_entity_id: UnsignedByteField,
        entity_type: EntityType,
    ) -> Countdown:
        return Countdown.from_seconds(1.0)


class Peer:
    """A socket and the settings of both roles."""

    def __init__(self, given: Arguments) -> None:
        self.given = given
        self.user = User()
        self.pace = Pace(given.rate_bps)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        self.socket.bind(given.bind)
        self.mode = (
            TransmissionMode.UNACKNOWLEDGED
            if given.cfdp_class == 1
            else TransmissionMode.ACKNOWLEDGED
        )
        indications = IndicationConfig(file_segment_recvd_indication_required=False)
        self.local = LocalEntityConfig(ByteFieldU16(given.entity), indications, Faults())
        self.remotes = RemoteEntityConfigTable(
            [
                RemoteEntityConfig(
                    entity_id=ByteFieldU16(given.remote),
                    max_file_segment_len=None,
                    max_packet_len=given.datagram,
                    closure_requested=False,
                    crc_on_transmission=False,
                    default_transmission_mode=self.mode,
                    crc_type=ChecksumType.CRC_32,
                    positive_ack_timer_interval_seconds=1.0,
                    positive_ack_timer_expiration_limit=10,
                    nak_timer_interval_seconds=1.0,
                    nak_timer_expiration_limit=20,
                )
            ]
        )

    def next_pdu(self, wait: bool) -> Any:
        """Returns the next PDU, or None; waits a millisecond if there is nothing else to do."""
        self.socket.settimeout(0.001 if wait else 0.0)
        try:
            return PduFactory.from_raw(self.socket.recv(65_536))
        except (BlockingIOError, TimeoutError):
            return None

    def run(self, handler: Any) -> bool:
        """Runs the handler until the transfer ends or the time is over."""
        start = time.monotonic()
        end = start + self.given.timeout_s
        sent = 0
        while time.monotonic() < end:
            if self.user.complete is not None and handler.state == CfdpState.IDLE:
                break
            pdu = self.next_pdu(wait=sent == 0)
            try:
                handler.state_machine(pdu)
            except Exception as error:
                # The handlers raise on unexpected PDUs (duplicates, for example) and continue.
                print(f"cfdp-py: {error!r}", file=sys.stderr)
            sent = 0
            while (holder := handler.get_next_packet()) is not None:
                raw = bytes(holder.pack())
                self.socket.sendto(raw, self.given.peer)
                self.pace.sent(len(raw))
                sent += 1
        report(time.monotonic() - start)
        return self.user.complete is True

    def send(self) -> bool:
        """Sends the file."""
        handler = SourceHandler(
            self.local, self.user, self.remotes, CheckTimers(), SeqCountProvider(16)
        )
        handler.put_request(
            PutRequest(
                destination_id=ByteFieldU16(self.given.remote),
                source_file=self.given.path,
                dest_file=Path(self.given.name),
                trans_mode=self.mode,
                closure_requested=False,
            )
        )
        return self.run(handler)

    def recv(self) -> bool:
        """Receives one file."""
        self.given.path.mkdir(parents=True, exist_ok=True)
        # The package writes to the path in the metadata, below the working directory.
        os.chdir(self.given.path)
        print("ready", flush=True)
        return self.run(DestHandler(self.local, self.user, self.remotes, CheckTimers()))


def main() -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    peer = Peer(arguments())
    return 0 if (peer.send() if peer.given.role == "send" else peer.recv()) else 1


if __name__ == "__main__":
    sys.exit(main())
