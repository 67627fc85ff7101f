"""Read CFDP PDUs with the package `spacepackets` and write them again.

Standard input: one PDU a line in hexadecimal. Standard output: one JSON object a line, with what
was understood (`kind`, `source`, `sequence`, `destination`, `fields`) and the bytes that
`spacepackets` makes of it (`hex`), or with `error`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spacepackets.cfdp.defs import CrcFlag
from spacepackets.cfdp.pdu import (
    AckPdu,
    EofPdu,
    FileDataPdu,
    FinishedPdu,
    KeepAlivePdu,
    MetadataPdu,
    NakPdu,
    PromptPdu,
)
from spacepackets.cfdp.pdu.helper import PduFactory
from spacepackets.cfdp.tlv import MessageToUserTlv, ReservedCfdpMessage


def repair(pdu: Any) -> None:
    """Undo what release 0.32 gets wrong: it leaves the condition of an EOF in the high bits."""
    if isinstance(pdu, EofPdu):
        pdu.condition_code = pdu.condition_code >> 4


def fields_of(pdu: Any) -> dict[str, Any]:
    """Returns the fields of the body by their names in the book; numbers as numbers."""
    match pdu:
        case FileDataPdu():
            metadata = pdu.segment_metadata
            return {
                "offset": pdu.offset,
                "data": pdu.file_data.hex(),
                "segment_metadata": None if metadata is None else metadata.metadata.hex(),
                "continuation": None if metadata is None else int(metadata.record_cont_state),
            }
        case EofPdu():
            return {
                "condition": int(pdu.condition_code),
                "checksum": int.from_bytes(pdu.file_checksum),
                "file_size": pdu.file_size,
                "fault_location": location_of(pdu),
            }
        case FinishedPdu():
            return {
                "condition": int(pdu.condition_code),
                "delivery": int(pdu.delivery_code),
                "file_status": int(pdu.file_status),
                "fault_location": location_of(pdu),
                "responses": len(pdu.file_store_responses or []),
            }
        case AckPdu():
            return {
                "directive": int(pdu.directive_code_of_acked_pdu),
                "condition": int(pdu.condition_code_of_acked_pdu),
                "status": int(pdu.transaction_status),
            }
        case MetadataPdu():
            return {
                "closure_requested": bool(pdu.closure_requested),
                "checksum_type": int(pdu.checksum_type),
                "file_size": pdu.file_size,
                "source_name": pdu.source_file_name,
                "destination_name": pdu.dest_file_name,
                "operations": [operation_of(tlv.pack()) for tlv in pdu.options or []],
            }
        case NakPdu():
            return {
                "scope_start": pdu.start_of_scope,
                "scope_end": pdu.end_of_scope,
                "requests": [list(pair) for pair in pdu.segment_requests],
            }
        case KeepAlivePdu():
            return {"progress": pdu.progress}
        case PromptPdu():
            return {"response": int(pdu.response_required)}
        case _:
            return {}


def location_of(pdu: Any) -> int | None:
    """Returns the entity of the fault location."""
    if pdu.fault_location is None:
        return None
    return int.from_bytes(pdu.fault_location.value)


def operation_of(tlv: bytes) -> dict[str, Any] | None:
    """Returns a user operation, as far as the package parses it."""
    if tlv[0] != 2:
        return None
    message = MessageToUserTlv.unpack(tlv).to_reserved_msg_tlv()
    if message is None:
        return None
    return {"type": message.get_reserved_cfdp_message_type(), **parameters_of(message)}


def parameters_of(message: ReservedCfdpMessage) -> dict[str, Any]:
    """Returns the parameters of the operations that the package parses."""
    if put := message.get_proxy_put_request_params():
        return {
            "destination": put.dest_entity_id.value,
            "source_name": put.source_file_as_str,
            "destination_name": put.dest_file_as_str,
        }
    if response := message.get_proxy_put_response_params():
        return {
            "condition": int(response.condition_code),
            "delivery": int(response.delivery_code),
            "file_status": int(response.file_status),
        }
    if origin := message.get_originating_transaction_id():
        return {"source": origin.source_id.value, "sequence": origin.seq_num.value}
    if (closure := message.get_proxy_closure_requested()) is not None:
        return {"closure_requested": closure}
    if (mode := message.get_proxy_transmission_mode()) is not None:
        return {"mode": int(mode)}
    if listing := message.get_dir_listing_request_params():
        return {"directory": listing.dir_path_as_str, "file": listing.dir_file_name_as_str}
    if answer := message.get_dir_listing_response_params():
        success, listing = answer
        return {
            "success": success,
            "directory": listing.dir_path_as_str,
            "file": listing.dir_file_name_as_str,
        }
    return {}


def check(data: bytes) -> dict[str, Any]:
    """Decodes and encodes one PDU."""
    try:
        pdu: Any = PduFactory.from_raw(data)
        repair(pdu)
        return {
            "kind": type(pdu).__name__,
            "source": pdu.source_entity_id.value,
            "sequence": pdu.transaction_seq_num.value,
            "destination": pdu.dest_entity_id.value,
            "direction": int(pdu.direction),
            "mode": int(pdu.transmission_mode),
            "crc": pdu.crc_flag == CrcFlag.WITH_CRC,
            "fields": fields_of(pdu),
            "hex": pdu.pack().hex(),
        }
    except Exception as error:  # The report is the point: any refusal is a finding.
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Replies line by line."""
    for line in sys.stdin:
        print(json.dumps(check(bytes.fromhex(line))))


if __name__ == "__main__":
    main()
