//! A bottleneck shared by several senders.

use slowlight_lab::run::{Recorders, Run};

use crate::runs::run_once;

/// Senders at up to 100 Mbit/s, unaware of their shared bottleneck: 10 Mbit/s behind a queue of
/// `packets` packets. Datagrams have 1,024 bytes, for which the queues are chosen. Each sender
/// starts 20 s after the previous one.
pub(crate) fn bottleneck(
    protocol: &str,
    queue: &str,
    delay: &str,
    sizes: &[&str],
    recorders: Recorders,
) -> Run {
    // Saratoga has settings for each peer.
    let rate = if protocol.starts_with("norm") { "mib.rate" } else { "mib.default.rate" };
    let mut nodes = String::from("seed = 3\n[nodes.far]\n[nodes.hub]\n");
    let mut links = format!(
        r#"
        [[links]]
        from = "hub"
        to = "far"
        rate = "10 Mbit/s"
        delay = "{delay}"
        datagram = "1024 B"
        queue = "{queue}"
        [[links]]
        from = "far"
        to = "hub"
        rate = "10 Mbit/s"
        delay = "{delay}"
        datagram = "1024 B"
        "#
    );
    for (index, size) in sizes.iter().enumerate() {
        nodes += &format!("[nodes.near{index}]\n{rate} = \"100 Mbit/s\"\n");
        links += &format!(
            r#"
            [[links]]
            from = "near{index}"
            to = "hub"
            rate = "100 Mbit/s"
            datagram = "1024 B"
            [[links]]
            from = "hub"
            to = "near{index}"
            rate = "100 Mbit/s"
            datagram = "1024 B"
            [[transfers]]
            from = "near{index}"
            to = "far"
            protocol = "{protocol}"
            size = "{size}"
            start = "{} s"
            "#,
            20 * index
        );
    }
    let run = run_once(&(nodes + &links), recorders);
    assert!(run.succeeded(), "{run:?}");
    run
}

/// Share of its packets that a bottleneck lost.
pub(crate) fn lost(run: &Run) -> f64 {
    let link = &run.links[0];
    link.lost.values().sum::<u64>() as f64 / link.pushed as f64
}

/// Goodput in Mbit/s.
pub(crate) fn goodput(run: &Run, index: usize) -> f64 {
    let transfer = &run.transfers[index];
    8e-6 * transfer.file_bytes as f64 / transfer.delivered_s.expect("it was delivered")
}
