"""A node of dtn7zero with MTCP on loopback and one application, in an environment of its own.

    peer.py node PORT PEER TO FILE      sends the file to the peer at port PEER as one bundle
    peer.py codec                       py-dtn7's codec, by the standard input and output

A codec decodes each bundle of the standard input, which has its length in four bytes before it, and
writes it encoded in the same form.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

from dtn7zero.bundle_protocol_agent import BundleProtocolAgent
from dtn7zero.configuration import CONFIGURATION
from dtn7zero.convergence_layer_adapters.mtcp import MTcpCLA
from dtn7zero.data import Node
from dtn7zero.endpoints import LocalEndpoint
from dtn7zero.routers.simple_epidemic_router import SimpleEpidemicRouter
from dtn7zero.storage.simple_in_memory_storage import SimpleInMemoryStorage
from py_dtn7 import Bundle

NODE = "dtn://theirs/"


class LoopbackMtcp(MTcpCLA):
    """MTCP that listens on loopback: the base class listens on all addresses."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_server(("127.0.0.1", port))
        self.socket.settimeout(0)
        self.open_receive_connections: dict[str, object] = {}
        self.gracefully_shutdown_connections: dict[str, object] = {}


def node(port: int, peer: int, to: str, path: Path) -> None:
    """Runs a node that sends a bundle, until it is stopped."""
    # No beacons.
    CONFIGURATION.IPND.ENABLED = False
    name = CONFIGURATION.IPND.IDENTIFIER_MTCP
    storage = SimpleInMemoryStorage()
    storage.add_node(Node("127.0.0.1", (1, "//ours/"), {name: peer}, 0))
    router = SimpleEpidemicRouter({name: LoopbackMtcp(port)}, storage)
    agent = BundleProtocolAgent(NODE, storage, router)
    endpoint = LocalEndpoint("out")
    agent.register_endpoint(endpoint)
    endpoint.start_transmission(path.read_bytes(), to)
    while True:
        agent.update()
        time.sleep(0.005)


def codec() -> None:
    """Decodes and encodes bundles."""
    while head := sys.stdin.buffer.read(4):
        bundle = Bundle.from_cbor(sys.stdin.buffer.read(int.from_bytes(head, "big"))).to_cbor()
        sys.stdout.buffer.write(len(bundle).to_bytes(4, "big") + bundle)


def main() -> None:
    """Runs a node or a codec."""
    match sys.argv[1:]:
        case ["node", port, peer, to, path]:
            node(int(port), int(peer), to, Path(path))
        case ["codec"]:
            codec()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
