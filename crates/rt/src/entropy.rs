//! The operating system's entropy, for values that a peer must not guess.

use std::io;

use engine::Rng;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a generator keyed by the operating system's entropy.
///
/// # Errors
///
/// The system provides none.
pub fn entropy() -> io::Result<Rng> {
    let mut key = [0u8; 32];
    // Requests of up to 256 bytes are filled completely once the kernel's pool is ready.
    let got = getrandom(&mut key, GetRandomFlags::empty())?;
    if got < key.len() {
        return Err(io::Error::other("the system returned less entropy than requested"));
    }
    Ok(Rng::from_entropy(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_generators_differ() {
        assert_ne!(entropy().unwrap().next_u64(), entropy().unwrap().next_u64());
    }
}
