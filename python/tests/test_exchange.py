"""What packets show: captures, exchanges, files for xplot."""

from __future__ import annotations

import unittest

from slowlight import connections, exchange, figures, messages, packets, xpl
from slowlight.errors import UserError
from slowlight.exchange import Exchange, Mark, Sent
from slowlight.figures import over_time, sequence
from slowlight.figures.spec import Spec
from slowlight.scenario import Scenario
from slowlight.watching import watch


class Captures(unittest.TestCase):
    def capture(self, **changes: str) -> bytes:
        keys = {f"transfers.0.{key}": value for key, value in changes.items()}
        world = Scenario.find("grc").changed({"links.*.per": "0.05", **keys})
        return world.single(seed=2, capture_at="src").capture

    def test_segments_have_scaled_windows_and_sack(self) -> None:
        frame = packets.read_capture(self.capture(protocol="ftp", size="200 kB"))
        self.assertEqual(packets.datagrams(frame), [])
        segments = packets.segments(frame)
        syn, data = segments[0], max(segments, key=lambda one: one.data)
        self.assertEqual((syn.syn, syn.ack, syn.data), (True, False, 0))
        self.assertEqual(data.source, "192.168.100.1")
        answers = [one for one in segments if one.source != data.source]
        # Larger ones do not fit into the 16 bits on the wire.
        self.assertGreater(max(one.window for one in answers), 65_535)
        edges = [edge for one in answers for edge in one.sack]
        self.assertTrue(edges, "SACK reports losses")
        self.assertTrue(all(packets.after(right, left) for left, right in edges))

    def test_datagrams_say_what_they_are(self) -> None:
        capture = self.capture(protocol="cfdp", size="20 kB")
        found = packets.datagrams(packets.read_capture(capture))
        self.assertIn("Metadata", found[0].says)
        self.assertTrue(any(one.comment.startswith("lost") for one in found))
        as_ltp = packets.datagrams(packets.read_capture(capture, "ltp"))
        self.assertTrue(any(one.says.startswith("not LTP: ") for one in as_ltp))
        with self.assertRaisesRegex(UserError, "FTP is text over TCP"):
            packets.read_capture(capture, "ftp")

    def test_what_is_no_capture_is_refused_and_what_is_cut_is_read_so_far(self) -> None:
        with self.assertRaises(UserError):
            packets.read_capture(b"no capture at all")
        whole = self.capture(protocol="cfdp", size="2 kB")
        with self.assertWarnsRegex(UserWarning, "ends within a record"):
            cut = packets.read_capture(whole[:-9])
        self.assertEqual(len(cut), len(packets.read_capture(whole)) - 1)

    def test_sequence_numbers_go_around(self) -> None:
        self.assertTrue(packets.after(5, 2**32 - 5))
        self.assertFalse(packets.after(2**32 - 5, 5))
        self.assertFalse(packets.after(5, 5))


class Places(unittest.TestCase):
    def test_symbols_of_norm_stand_where_rfc_5052_puts_them(self) -> None:
        # 10 symbols in blocks of at most 4: three blocks of 4, 3 and 3.
        norm = messages.Norm(9_950, 1_000, 4)
        self.assertEqual(norm.place(0, 3), (3_000, 4_000, False))
        self.assertEqual(norm.place(1, 0), (4_000, 5_000, False))
        self.assertEqual(norm.place(2, 2), (9_000, 9_950, False))
        self.assertEqual(norm.place(1, 3), (6_000, 7_000, True))

    def test_new_bytes_are_counted_once(self) -> None:
        data = [Sent(0, 0, 100, 128), Sent(1, 200, 300, 128), Sent(2, 50, 250, 228),
                Sent(3, 0, 300, 328, again=True), Sent(4, 0, 100, 128, parity=True)]  # fmt: skip
        self.assertEqual([fresh for _, fresh in exchange.new_bytes(data)], [100, 100, 100, 0, 0])

    def test_outages_are_in_seconds(self) -> None:
        down = {"outages": [{"at": "60 s", "for": "2 min"}]}
        self.assertEqual(exchange.outages({"links": [down, down]}), [(60.0, 180.0)])
        with self.assertRaisesRegex(UserError, "'60' is not a time"):
            exchange.seconds("60")

    def test_a_loss_belongs_to_the_sending_before_it(self) -> None:
        lost = {5: [1.2, 9.0]}
        self.assertTrue(connections.is_lost(lost, 5, 1.0))
        self.assertFalse(connections.is_lost({5: [1.2]}, 5, 2.0))
        self.assertFalse(connections.is_lost({}, 5, 1.0))


class Drawn(unittest.TestCase):
    MADE = Exchange(
        "a",
        data=[Sent(0.0, 0, 10, 38), Sent(0.1, 10, 20, 38, lost=True), Sent(2.0, 10, 20, 38, True)],
        acks=[(1.0, 10), (1.5, 10), (3.0, 20)],
        window=[(1.0, 50), (3.0, 60)],
        marks=[Mark(0.2, "EOF", False), Mark(3.1, "Finished", True)],
        outages=[(0.5, 0.8)],
    )

    def test_strokes_keep_what_can_be_told_apart(self) -> None:
        self.assertEqual(len(sequence.lines(self.MADE.data[:2], 0.2)), 1)
        self.assertEqual(len(sequence.lines(self.MADE.data[:2], 0.01)), 2)
        # What is sent again is not joined to what was before.
        self.assertEqual(len(sequence.lines(self.MADE.data, 0.2)), 2)

    def test_a_graph_shows_data_losses_answers_and_outages(self) -> None:
        figure = sequence.draw(self.MADE, Spec("sequence", title="x"))
        told = {text.get_text() for text in figure.legends[0].get_texts()}
        self.assertEqual(
            told,
            {"data", "retransmitted", "lost", "acknowledged", "window's end", "link down",
             "EOF (from sender)", "Finished (from receiver)"},
        )  # fmt: skip

    def test_a_file_for_xplot_has_every_packet(self) -> None:
        text = xpl.text(self.MADE, "a title")
        lines = text.splitlines()
        self.assertEqual(lines[:3], ["double signed", "title", "a title"])
        self.assertEqual(lines[-1], "go")
        self.assertEqual(sum(line.startswith("uarrow ") for line in lines), 3)
        self.assertIn("line 1.500000 10 3.000000 10", lines)
        self.assertIn("utick 1.500000 10", lines)
        self.assertIn("R", lines)

    def test_rates_are_of_bits_in_bins(self) -> None:
        middles, throughput, goodput = over_time.rates(self.MADE, 1.0)
        self.assertEqual(middles[0], 0.5)
        self.assertEqual(throughput[:3], [8.0 * 76, 0.0, 8.0 * 38])
        self.assertEqual(goodput[:3], [160.0, 0.0, 0.0])


class OfProtocols(unittest.TestCase):
    def watched(self, protocol: str) -> Exchange:
        changes = {"transfers.0.protocol": protocol, "transfers.0.size": "60 kB",
                   "links.*.delay": "250 ms", "links.*.per": "0.05"}  # fmt: skip
        return watch(Scenario.find("grc").changed(changes), seed=2)

    def test_every_protocol_has_a_graph(self) -> None:
        for protocol in ("cfdp", "ltp", "ltp-t", "saratoga", "saratoga-get", "norm", "norm-fec",
                         "ftp", "scp", "scps-fp", "bp-tcpcl", "bp-ltp", "bp-norm"):  # fmt: skip
            with self.subTest(protocol):
                seen = self.watched(protocol)
                self.assertGreaterEqual(seen.high, 60_000)
                self.assertLess(seen.high, 70_000)
                self.assertTrue(any(one.lost for one in seen.data))
                repaired = any(one.again or one.parity for one in seen.data)
                self.assertTrue(repaired, "something is sent again")
                if protocol in ("ltp", "saratoga", "ftp", "bp-tcpcl"):
                    self.assertGreaterEqual(seen.acks[-1][1], 60_000)

    def test_packets_of_a_scenario_are_drawn_without_results(self) -> None:
        for kind in ("sequence", "rate"):
            drawn = figures.draw(figures.read({"kind": kind, "scenario": "grc-10kb"}))
            self.assertTrue(drawn.axes[0].has_data(), kind)
        with self.assertRaisesRegex(UserError, "'lines' needs results of a study"):
            figures.draw(figures.read({"kind": "lines", "x": "per", "y": "goodput_bps"}))

    def test_a_capture_is_taken_where_it_is_asked_for(self) -> None:
        world = Scenario.find("grc-10kb")
        seen = [packets.read_capture(world.single(capture_at=at).capture) for at in ("src", "dst")]
        first = [frame["at_s"][0] for frame in seen]
        self.assertEqual(first, [0.0, 1.25])


if __name__ == "__main__":
    unittest.main()
