use service::gateway::Gateway;

use super::listening;
use super::rules::Rules;

fn gateway(more: &str) -> Gateway {
    let least = "[lan]\ninterfaces = [\"eth0\", \"eth1\"]\n[wan]\ninterfaces = [\"sat0\"]\n";
    Gateway::parse(&format!("{least}{more}"), "g.toml").unwrap()
}

#[test]
fn rules_take_what_is_to_be_taken_and_nothing_else() {
    let rules = Rules::for_gateway(&gateway(
        "[intercept]\nports = [80, \"8000-8999\"]\nexcept = 8022\nipv6 = false\n",
    ));
    let lines: Vec<_> = rules.nft.lines().map(str::trim).collect();
    let taken = "tcp dport { 80, 8000-8021, 8023-8999 }";
    let lan = format!(
        "meta nfproto ipv4 iifname {{ \"eth0\", \"eth1\" }} {taken} \
         tproxy ip to 127.0.0.1:7430 meta mark set 0x5e9 accept"
    );
    let wan = format!(
        "meta nfproto ipv4 iifname {{ \"sat0\" }} {taken} \
         tproxy ip to 127.0.0.1:7431 meta mark set 0x5e9 accept"
    );
    assert!(lines.contains(&lan.as_str()) && lines.contains(&wan.as_str()), "{lines:?}");
    assert!(!rules.nft.contains("ip6"));
    let six = Rules::for_gateway(&gateway(""));
    assert!(six.nft.contains("tproxy ip6 to [::1]:7430"), "{}", six.nft);
    let shell = six.shell(&gateway(""));
    assert!(shell.contains("ip -6 rule add priority 1513 fwmark 0x5e9 lookup 1513"), "{shell}");
    assert!(shell.contains("nft delete table inet slowlight_pep"), "{shell}");
}

#[test]
fn all_that_is_done_in_the_kernel_is_printed() {
    let gateway = gateway("[wan.own]\ndevice = \"far\"\n");
    let shell = Rules::for_gateway(&gateway).shell(&gateway);
    let (set, remove) = shell.split_once("# remove\n").unwrap();
    for line in [
        "ip tuntap add dev far mode tun\n",
        "ip link set far mtu \"$(sort -n /sys/class/net/sat0/mtu | head -n 1)\"",
        "ip link set far up\n",
        "echo 0 > /proc/sys/net/ipv4/tcp_early_demux\n",
        "ip -4 route replace 0.0.0.0/0 dev far table 1514\n",
    ] {
        assert!(set.contains(line), "{line}: {set}");
    }
    assert!(remove.contains("ip link del far\n"), "{remove}");
    assert!(remove.contains("echo 1 > /proc/sys/net/ipv4/tcp_early_demux\n"), "{remove}");
}

#[test]
fn each_side_has_its_own_settings() {
    let more = "[wan.kernel]\ncongestion = \"bbr\"\nrate = \"8 Mbit/s\"\nsend_buffer = \"2MiB\"\n";
    let all = listening(&gateway(more));
    // The loopback addresses of both versions of IP, for each side.
    assert_eq!(all.len(), 4);
    let (lan, wan) = (&all[0], &all[2]);
    assert_eq!(lan.options.congestion, None);
    assert_eq!(lan.onward.as_ref().unwrap(), &wan.options);
    assert_eq!(wan.onward.as_ref().unwrap(), &lan.options);
    assert_eq!(wan.options.congestion.as_deref(), Some("bbr"));
    assert_eq!(wan.options.rate_bps, Some(8_000_000));
    assert_eq!(wan.options.send_buffer, Some(2 << 20));
    assert!(lan.options.transparent && wan.options.transparent);
}
