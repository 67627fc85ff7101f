//! Copies a folder as a transfer does: it is scanned, divided into packs, read, stored as archives
//! and unpacked. Prints the time of each step. Without arguments it copies this crate into a
//! temporary folder.
//!
//! ```sh
//! cargo run --release --package slowlight-tree --example copy_tree -- FROM TO
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use slowlight_tree::{Existing, Pack, ScanOptions, Unpacker, plan, process_umask, scan};

/// Bytes of a pack.
const PACK_MAX: u64 = 4_000_000;
/// Bytes of each read.
const PIECE: usize = 64 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match arguments.as_slice() {
        [from, to] => copy(from, to),
        [] => copy(Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir()?.path()),
        _ => Err("give FROM and TO".into()),
    }
}

#[expect(clippy::print_stdout, reason = "an example prints")]
fn copy(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let hidden = to.join(".slowlight");
    fs::create_dir_all(&hidden)?;
    let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority());
    let unpacker = Unpacker {
        root: open(to)?,
        staging: open(&hidden)?,
        existing: Existing::Rename,
        umask: process_umask()?,
    };

    let start = Instant::now();
    let found = scan(&[from.to_path_buf()], &ScanOptions::default())?;
    let entries = found.entries.len();
    println!("scan of {entries} entries: {:.3} s", start.elapsed().as_secs_f64());
    for skipped in &found.skipped {
        println!("not sent: {}: {}", skipped.path.display(), skipped.reason);
    }
    let start = Instant::now();
    let plans = plan(found.entries, PACK_MAX);
    println!("plan of {} packs: {:.3} s", plans.len(), start.elapsed().as_secs_f64());

    let (mut bytes, mut files) = (0, 0);
    let (mut reading, mut unpacking) = (Duration::ZERO, Duration::ZERO);
    let path = hidden.join("pack.tar");
    let mut piece = vec![0; PIECE];
    for plan in plans {
        let pack = Pack::new(plan);
        let archive =
            File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        let mut offset = 0;
        while offset < pack.len() {
            let start = Instant::now();
            let read = pack.read_at(offset, &mut piece)?;
            reading += start.elapsed();
            archive.write_all_at(piece.get(..read).unwrap_or_default(), offset)?;
            offset += read as u64;
        }
        bytes += pack.len();
        let start = Instant::now();
        let unpacked = unpacker.unpack(&archive)?;
        unpacking += start.elapsed();
        files += unpacked.files;
        for refused in &unpacked.refused {
            println!("not installed: {}: {}", refused.name.escape_ascii(), refused.reason);
        }
    }
    fs::remove_file(path)?;
    fs::remove_dir(hidden)?;
    let seconds = reading.as_secs_f64();
    println!("read of {bytes} bytes: {seconds:.3} s, {:.2} GB/s", bytes as f64 / seconds / 1e9);
    let seconds = unpacking.as_secs_f64();
    println!("unpack of {files} files: {seconds:.3} s, {:.0} files/s", files as f64 / seconds);
    Ok(())
}
