//! Captures as columns.

use lab::decode::Language;
use lab::packets::{Packet, Tcp};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{of_spec, refused, unlocked};

fn language(protocol: Option<&str>) -> PyResult<Option<Language>> {
    let language = protocol.map(str::parse).transpose();
    language.map_err(|error| of_spec(&error))
}

/// Returns the line about one PDU: of this protocol, or of the first that can decode it.
#[pyfunction]
#[pyo3(signature = (datagram, protocol = None))]
pub(crate) fn decode(datagram: &[u8], protocol: Option<&str>) -> PyResult<String> {
    lab::decode::lines(datagram, language(protocol)?).map_err(refused)
}

/// Returns the IPv4 packets of a capture as columns, and the error that ended reading, if any.
#[pyfunction]
pub(crate) fn packets<'py>(
    py: Python<'py>,
    capture: &[u8],
    protocol: Option<&str>,
) -> PyResult<(Bound<'py, PyDict>, Option<String>)> {
    let language = language(protocol)?;
    let read = unlocked(py, |_| lab::packets::read(capture, language))?.map_err(refused)?;
    let all = &read.packets;
    let columns = PyDict::new(py);
    columns.set_item("at_s", each(all, |one| one.at.as_secs_f64()))?;
    columns.set_item("interface", each(all, |one| one.interface))?;
    columns.set_item("protocol", each(all, |one| u16::from(one.ip.protocol)))?;
    columns.set_item("source", each(all, |one| one.ip.source.to_string()))?;
    columns.set_item("source_port", each(all, |one| ports(one, |ports| ports.0)))?;
    columns.set_item("destination", each(all, |one| one.ip.destination.to_string()))?;
    columns.set_item("destination_port", each(all, |one| ports(one, |ports| ports.1)))?;
    columns.set_item("ip_bytes", each(all, |one| one.ip.total_len))?;
    columns.set_item("data_bytes", each(all, |one| one.data))?;
    columns.set_item("says", each(all, |one| one.says.clone()))?;
    columns.set_item("comment", each(all, |one| one.comment.clone()))?;
    columns.set_item("sequence", each(all, |one| tcp(one, |tcp| tcp.sequence)))?;
    columns.set_item("acknowledgment", each(all, |one| tcp(one, |tcp| tcp.acknowledgment)))?;
    columns.set_item("window", each(all, |one| tcp(one, |tcp| tcp.window)))?;
    columns.set_item("flags", each(all, |one| tcp(one, |tcp| tcp.flags.to_string())))?;
    columns.set_item("sack", each(all, |one| tcp(one, edges)))?;
    Ok((columns, read.cut.map(|error| error.to_string())))
}

fn each<T>(packets: &[Packet], find: impl Fn(&Packet) -> T) -> Vec<T> {
    packets.iter().map(find).collect()
}

fn ports(packet: &Packet, find: impl Fn((u16, u16)) -> u16) -> Option<u16> {
    packet.ports.map(find)
}

fn tcp<T>(packet: &Packet, find: impl Fn(&Tcp) -> T) -> Option<T> {
    packet.tcp.as_ref().map(find)
}

/// Edges of SACK blocks: pairs of left and right.
fn edges(tcp: &Tcp) -> Vec<(u32, u32)> {
    tcp.sack.iter().map(|block| (block.left, block.right)).collect()
}
