//! Two hosts and a link.

use std::process::Command;
use std::time::Duration;

use engine::Rng;
use link::{Config, Delay};

use crate::namespace::Namespace;
use crate::pump::{Pipe, Port, Pump, Way, config::Carrier};
use crate::tun::Tun;

#[test]
fn trial() {
    let Ok(script) = std::env::var("TRIAL") else { return };
    let delay = std::env::var("DELAY_MS").map_or(10, |ms| ms.parse().unwrap());
    let real_time = std::env::var("FIFO").is_ok();
    let a = Namespace::create().unwrap();
    let b = Namespace::create().unwrap();
    let device = |namespace: &Namespace| namespace.within(|| Tun::create("link0")).unwrap().unwrap();
    let (tun_a, tun_b) = (device(&a), device(&b));
    let setup = |mine: &str, theirs: &str| {
        vec![
            "link set lo up".to_owned(),
            "link set link0 mtu 1500 txqueuelen 10000 up".to_owned(),
            format!("addr add {mine}/32 dev lo"),
            format!("route add {theirs}/32 dev link0 src {mine}"),
        ]
    };
    a.ip(&setup("10.0.0.1", "10.0.0.2")).unwrap();
    b.ip(&setup("10.0.0.2", "10.0.0.1")).unwrap();
    for namespace in [&a, &b] {
        namespace.sysctl("net.ipv4.tcp_rmem", "4096 131072 268435456").unwrap();
        namespace.sysctl("net.ipv4.tcp_wmem", "4096 131072 268435456").unwrap();
    }
    let per: f64 = std::env::var("PER").map_or(0.0, |per| per.parse().unwrap());
    let queue = link::Queue { packets: Some(100_000), bytes: None };
    let errors = vec![link::ErrorModel::dropping(link::ErrorKind::PerPacket(per))];
    let rate = std::env::var("RATE").map_or(link::Rate::default(), |rate| {
        link::Rate::Constant(rate.parse().unwrap())
    });
    let config = Config {
        delay: Delay::Constant(Duration::from_millis(delay)),
        queue,
        errors,
        rate,
        ..Config::default()
    };
    let pipe = |to, name| Pipe::new(Carrier::new(config.clone(), Rng::new(1, name)).unwrap(), to);
    let pipes = vec![pipe(1, "there"), pipe(0, "back")];
    let ports =
        vec![Port { tun: tun_a, way: Way::One(0) }, Port { tun: tun_b, way: Way::One(1) }];
    let (pump, handle) = Pump::new(ports, pipes, 1 << 30).unwrap();
    let thread = std::thread::spawn(move || {
        let slack = std::num::NonZeroU64::MIN;
        rustix::thread::set_current_timer_slack(Some(slack)).unwrap();
        if real_time {
            #[expect(unsafe_code, reason = "trial")]
            // SAFETY: plain call.
            unsafe {
                let param = libc::sched_param { sched_priority: 1 };
                assert_eq!(libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param), 0);
            }
        }
        pump.run(real_time)
    });
    let fd = |n: &Namespace| format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(n));
    let status = Command::new("bash")
        .args(["-c", &script])
        .env("A", fd(&a))
        .env("B", fd(&b))
        .status()
        .unwrap();
    handle.stop();
    let report = thread.join().unwrap().unwrap();
    for link in &report.links {
        let q = |x| link.lateness.quantile(x);
        println!(
            "{:?} lost {:?} late p50 {:?} p99 {:?} p99.9 {:?} max {:?} refused {}",
            link.stats.delivered,
            link.stats.lost_total(),
            q(0.5), q(0.99), q(0.999), link.lateness.most(), link.refused
        );
    }
    println!("no memory {} unreadable {}", report.no_memory, report.unreadable);
    assert!(status.success());
}
