//! Bits of a packet that arrive flipped.

/// Positions stored without allocation; at the error rates of real links few packets have more.
const INLINE: usize = 3;

/// Bits of one packet that arrive flipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    first: [u32; INLINE],
    count: u32,
    more: Vec<u32>,
}

impl Damage {
    /// Returns positions within the IP packet; bit 0 is the most significant bit of its first byte.
    /// A position that occurs twice is flipped twice.
    pub fn bits(&self) -> impl Iterator<Item = u32> + '_ {
        let inline = (self.count as usize).min(INLINE);
        self.first[..inline].iter().chain(&self.more).copied()
    }

    /// Flips the bits in `bytes`, the IP packet. Ignores positions beyond its end.
    pub fn apply(&self, bytes: &mut [u8]) {
        for bit in self.bits() {
            if let Some(byte) = bytes.get_mut(bit as usize / 8) {
                *byte ^= 0x80 >> (bit % 8);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a position; takes memory for many positions from `spare`.
    pub(crate) fn flip(&mut self, bit: u64, spare: &mut Vec<Vec<u32>>) {
        // An IP packet, even a jumbogram's 4 GB / 8, has fewer bits than 2^32.
        let Ok(bit) = u32::try_from(bit) else { return };
        match self.first.get_mut(self.count as usize) {
            Some(slot) => *slot = bit,
            None => {
                if self.more.capacity() == 0 {
                    self.more = spare.pop().unwrap_or_default();
                }
                self.more.push(bit);
            }
        }
        self.count += 1;
    }

    /// Returns the memory for many positions.
    pub(crate) fn into_room(mut self) -> Option<Vec<u32>> {
        self.more.clear();
        (self.more.capacity() > 0).then_some(self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_flips_its_bits_and_twice_restores() {
        let mut damage = Damage::default();
        let mut spare = vec![Vec::with_capacity(8)];
        for bit in [0, 7, 8, 23, 1_000, 8] {
            damage.flip(bit, &mut spare);
        }
        assert!(spare.is_empty(), "the room was taken from the spare");
        let mut bytes = [0xa5; 3];
        damage.apply(&mut bytes);
        assert_eq!(bytes, [0xa5 ^ 0x81, 0xa5, 0xa5 ^ 0x01]);
        damage.apply(&mut bytes);
        assert_eq!(bytes, [0xa5; 3]);
        assert_eq!(damage.bits().count(), 6);
        assert_eq!(damage.into_room().map(|room| room.len()), Some(0));
    }
}
