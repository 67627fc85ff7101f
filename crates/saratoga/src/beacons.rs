//! Beacons, which announce a peer and its abilities (§4.1).

use engine::{PathId, Time};
use session::path::{Handle, Path};
use session::timer::TICK;

use super::Node;
use super::core::Alarm;
use super::indication::{About, Indication};
use crate::packet::{Ability, Beacon, Packet, Width};

impl Node {
    pub(super) fn on_beacon(&mut self, from: PathId, beacon: &Beacon<'_>) {
        let about = About {
            eid: String::from_utf8_lossy(beacon.eid).into_owned(),
            descriptor: beacon.descriptor,
            streams: beacon.streams,
            udp_lite: beacon.udp_lite,
            sends: beacon.sends,
            receives: beacon.receives,
            free_kib: beacon.free_space.map(|(_, kib)| kib),
        };
        self.core.user.indicate(Indication::Beacon { from, about });
    }

    /// Sends a beacon and schedules the next one.
    pub(super) fn beacon(&mut self, now: Time) {
        let Some(beacons) = self.core.config.beacons.clone() else { return };
        let permissions = self.core.config.permissions;
        let able = |yes| if yes { Ability::Yes } else { Ability::NotNow };
        let packet = Packet::Beacon(Beacon {
            descriptor: self.core.config.descriptor,
            bundles: false,
            streams: true,
            sends: able(permissions.get),
            receives: able(permissions.put),
            udp_lite: self.core.config.udp_lite,
            // The largest value of a field means "more".
            free_space: self.free_kib.map(|kib| (Width::fitting(kib.saturating_add(1)), kib)),
            eid: self.core.config.eid.as_bytes(),
        });
        let bytes = packet.to_vec().unwrap_or_default();
        let mut any = false;
        for path in beacons.paths {
            if self.core.shared.paths.get(&path).is_some_and(Path::is_up) {
                self.reply(path, bytes.clone());
                any = true;
            }
        }
        if any {
            let at = now + beacons.interval.max(TICK);
            self.core.shared.timers.set((Handle::NOBODY, Alarm::Beacon), at, "beacon");
        }
    }
}
