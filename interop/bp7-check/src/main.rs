//! Compares the crate bp7's codec and slowlight's; makes bundles for codecs in other languages.
//!
//! `bp7-check COUNT SEED`: both encode each bundle to the same bytes, each decodes the other's
//! encoding, and neither decodes a bundle with one changed byte if every block has a CRC. Exit
//! code 1, with the difference, at the first failure.
//!
//! `bp7-check COUNT SEED all|plain`: writes the bundles to the standard output, each after its
//! length in four bytes.

use std::io::Write;

use bp::codec::bp7::{Bounds, Bundle};
use bp7_check::{Both, Kinds, Numbers, made};

/// Compares encodings, and decodes each with the other implementation.
fn check(numbers: &mut Numbers) -> Result<bool, String> {
    let Both { mut theirs, ours, is_checked } = made(numbers, Kinds::All);
    let written = theirs.to_cbor();
    if written != ours {
        let at = written.iter().zip(&ours).position(|(one, other)| one != other);
        return Err(format!(
            "written otherwise from byte {at:?} on: {} and {} bytes",
            written.len(),
            ours.len()
        ));
    }
    let read = bp7::Bundle::try_from(ours.as_slice());
    let mut read = read.map_err(|error| format!("bp7 does not read ours: {error}"))?;
    read.validate().map_err(|errors| format!("bp7 refuses ours: {errors:?}"))?;
    if !read.crc_valid() {
        return Err("bp7 finds our checks wrong".to_owned());
    }
    if read != theirs {
        return Err(format!("bp7 reads ours otherwise: {read:?}, {theirs:?}"));
    }
    let bundle = Bundle::decode(&written, &Bounds::default());
    let bundle = bundle.map_err(|error| format!("we do not read that of bp7: {error}"))?;
    if bundle.to_vec().as_ref() != Ok(&written) {
        return Err("we do not write again what bp7 wrote".to_owned());
    }
    if !is_checked {
        return Ok(false);
    }
    let mut damaged = written;
    let at = numbers.below(damaged.len() as u64) as usize;
    damaged[at] ^= 1 << numbers.below(8);
    if Bundle::decode(&damaged, &Bounds::default()).is_ok() {
        return Err(format!("we take a bundle whose byte {at} was changed"));
    }
    Ok(bp7::Bundle::try_from(damaged).is_ok_and(|mut bundle| bundle.crc_valid()))
}

/// Writes bundles to the standard output.
fn write(count: u64, seed: u64, kinds: Kinds) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    for number in 0..count {
        let bundle = made(&mut Numbers::new(seed, number), kinds).ours;
        output.write_all(&(bundle.len() as u32).to_be_bytes())?;
        output.write_all(&bundle)?;
    }
    output.flush()
}

fn compare(count: u64, seed: u64) -> Result<(), String> {
    let mut taken = 0;
    for number in 0..count {
        match check(&mut Numbers::new(seed, number)) {
            Ok(is_taken) => taken += u64::from(is_taken),
            Err(error) => return Err(format!("bundle {number} of seed {seed}: {error}")),
        }
    }
    println!("{count} bundles alike; bp7 took {taken} of those that were changed, we none");
    Ok(())
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| given.get(at).and_then(|text| text.parse().ok());
    let kinds = match given.get(2).map(String::as_str) {
        Some("all") => Some(Kinds::All),
        Some("plain") => Some(Kinds::Plain),
        _ => None,
    };
    let done = match (number(0), number(1), kinds) {
        (Some(count), Some(seed), None) if given.len() == 2 => compare(count, seed),
        (Some(count), Some(seed), Some(kinds)) => {
            write(count, seed, kinds).map_err(|error| error.to_string())
        }
        _ => {
            eprintln!("usage: bp7-check COUNT SEED [all|plain]");
            std::process::exit(2);
        }
    };
    if let Err(error) = done {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
