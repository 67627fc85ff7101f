use std::path::PathBuf;

use super::*;

fn put(key: &str, value: &[u8]) -> IndexRequest {
    IndexRequest::Put { key: key.to_owned(), value: Bytes::copy_from_slice(value) }
}

fn remove(key: &str) -> IndexRequest {
    IndexRequest::Remove { key: key.to_owned() }
}

fn record(key: &str, value: &[u8]) -> (String, Bytes) {
    (key.to_owned(), Bytes::copy_from_slice(value))
}

fn open(place: &Path) -> Log {
    Log::with_segments(place, 4096, 0, 0).unwrap()
}

fn files(place: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(place.join(DIRECTORY)).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort_unstable();
    files
}

#[test]
fn changes_of_one_turn_are_carried_out_in_their_order() {
    let place = tempfile::tempdir().unwrap();
    let requests =
        [put("b", b"two"), put("a", b"x"), put("b", b""), remove("a"), remove("d"), put("c", b"y")];
    let log = open(place.path());
    let answers = log.change(&requests.iter().collect::<Vec<_>>());
    assert_eq!(answers, [const { Ok(()) }; 6]);
    let expected = [record("b", b""), record("c", b"y")];
    assert_eq!(log.load("").unwrap(), expected);
    drop(log);
    let log = open(place.path());
    assert_eq!(log.load("").unwrap(), expected);
    log.clear().unwrap();
    assert_eq!(log.load("").unwrap(), []);
    log.change(&[&put("d", b"z")]);
    drop(log);
    assert_eq!(open(place.path()).load("").unwrap(), [record("d", b"z")]);
}

/// Random changes, and the records that are there after them.
fn churn(
    log: &Log,
    records: &mut std::collections::BTreeMap<String, Bytes>,
    turns: u32,
    seed: u64,
) {
    let mut rng = engine::Rng::new(seed, "changes");
    for turn in 0..turns {
        let mut requests = Vec::new();
        for _ in 0..=rng.below(8) {
            let key = format!("k-{:016x}", rng.below(40));
            if rng.below(3) == 0 {
                records.remove(&key);
                requests.push(remove(&key));
            } else {
                let value = Bytes::from(vec![turn as u8; rng.below(600) as usize]);
                records.insert(key.clone(), value.clone());
                requests.push(IndexRequest::Put { key, value });
            }
        }
        let answers = log.change(&requests.iter().collect::<Vec<_>>());
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        log.tidy();
    }
}

#[test]
fn old_segments_are_emptied_and_their_files_used_again() {
    let place = tempfile::tempdir().unwrap();
    let mut records = std::collections::BTreeMap::new();
    for seed in 0..20 {
        let log = open(place.path());
        assert!(log.load("").unwrap().into_iter().eq(records.clone()), "{seed}");
        log.change(&[&put("lasting", b"value")]);
        records.insert("lasting".to_owned(), Bytes::from_static(b"value"));
        churn(&log, &mut records, 100, seed);
        let inside = log.inside();
        let all: u64 = inside.segments.iter().map(|segment| segment.len).sum();
        assert!(all <= 2 * (inside.live + 4096) + 4096, "{all} of {}", inside.live);
        assert!(inside.segments.front().is_some_and(|oldest| oldest.number > 0));
        let live: u64 = inside.segments.iter().map(|segment| segment.live).sum();
        assert_eq!(live, inside.live);
        assert!(files(place.path()).len() <= inside.segments.len() + SPARES);
    }
}

/// An old record that lasts must not keep removals of others for ever.
#[test]
fn removals_end_behind_an_oldest_segment_that_lasts() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    for number in 0..4 {
        log.change(&[&put(&format!("lasting{number}"), &[1; 1000])]);
    }
    for number in 0..2000 {
        let key = number.to_string();
        log.change(&[&put(&key, b"")]);
        log.change(&[&remove(&key)]);
        log.tidy();
    }
    let bytes: u64 = files(place.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= 10 * 4096, "{bytes}");
    drop(log);
    let keys: Vec<_> =
        open(place.path()).load("").unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["lasting0", "lasting1", "lasting2", "lasting3"]);
}

/// A segment in the middle is emptied, whose removal hides a record in an older one.
#[test]
fn a_removal_is_kept_while_an_older_segment_has_the_record() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    log.change(&[&put("removed", b"value"), &put("back", b"old"), &put("lasting", &[1; 3500])]);
    log.change(&[&remove("removed"), &remove("back"), &put("other", &[2; 3500])]);
    log.change(&[&put("other", &[3; 3500]), &put("back", b"new")]);
    assert_eq!(log.inside().segments.len(), 3);
    log.inside().empty(1).unwrap();
    let expected =
        [record("back", b"new"), record("lasting", &[1; 3500]), record("other", &[3; 3500])];
    for _ in 0..2 {
        let log = open(place.path());
        assert_eq!(log.load("").unwrap(), expected);
    }
    let log = open(place.path());
    log.inside().empty(0).unwrap();
    drop(log);
    assert_eq!(open(place.path()).load("").unwrap(), expected);
}

#[test]
fn a_log_without_records_needs_little_space() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    for number in 0..1000 {
        let key = number.to_string();
        log.change(&[&put(&key, &[1; 1000]), &remove(&key)]);
        log.tidy();
    }
    let bytes: u64 = files(place.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= 6 * 4096, "{bytes}");
}

#[test]
fn a_record_may_be_longer_than_a_segment() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    for turn in 0..5 {
        let long = vec![turn; 10_000];
        let answers = log.change(&[&put("a", b"short"), &put("b", &long), &put("c", &long)]);
        assert_eq!(answers, [const { Ok(()) }; 3]);
        log.tidy();
        let expected = [record("a", b"short"), record("b", &long), record("c", &long)];
        assert_eq!(log.load("").unwrap(), expected);
    }
    let inside = log.inside();
    let all: u64 = inside.segments.iter().map(|segment| segment.len).sum();
    assert!(all <= 2 * (inside.live + 4096) + 10_000, "{all} of {}", inside.live);
    drop(inside);
    let refused = put(&"k".repeat(256), b"");
    let answers = log.change(&[&refused, &put("d", b"")]);
    assert!(answers[0].is_err() && answers[1].is_ok());
}

/// The log of each moment at which a crash could have stopped it: with the last segment cut off or
/// damaged anywhere behind what was confirmed.
#[test]
fn what_was_not_confirmed_is_cut_off() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    log.change(&[&put("a", b"one"), &put("b", b"two")]);
    let confirmed = log.inside().segments.back().unwrap().len;
    log.change(&[&put("b", b"three"), &put("c", b"four")]);
    let path = files(place.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    drop(log);
    let kept = [record("a", b"one"), record("b", b"two")];
    for end in confirmed as usize..whole.len() {
        for is_torn in [false, true] {
            let mut content = whole.clone();
            if is_torn {
                content[end] ^= 0x55;
            } else {
                content.truncate(end);
            }
            fs::write(&path, content).unwrap();
            let log = open(place.path());
            let records = log.load("").unwrap();
            assert_eq!(records[0], kept[0], "{end}");
            assert!(records[1] == kept[1] || records[1] == record("b", b"three"), "{end}");
            // Nothing of the former content comes back behind new entries.
            let known = records.len();
            let sizes = (0..60).map(|len| put("d", &vec![0; len])).collect::<Vec<_>>();
            for change in sizes {
                log.change(&[&change, &remove("d")]);
            }
            drop(log);
            assert_eq!(open(place.path()).load("").unwrap().len(), known, "{end}");
        }
    }
}

#[test]
fn damage_of_the_last_segment_costs_what_is_damaged() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    for key in ["a", "b", "c"] {
        log.change(&[&put(key, b"value")]);
    }
    drop(log);
    let path = files(place.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let (begin, entry) = (BEGIN as usize, HEAD + 1 + 5);
    for at in 0..begin + 2 * entry {
        let mut content = whole.clone();
        content[at] ^= 1;
        fs::write(&path, content).unwrap();
        let keys: Vec<_> =
            open(place.path()).load("").unwrap().into_iter().map(|(key, _)| key).collect();
        let kept = match at.checked_sub(begin).map(|at| at / entry) {
            None => vec!["a", "b", "c"],
            Some(0) => vec!["b", "c"],
            Some(_) => vec!["a", "c"],
        };
        assert_eq!(keys, kept, "{at}");
    }
}

#[test]
fn records_that_are_found_damaged_when_moved_do_not_come_back() {
    for at in [0, HEAD + 100] {
        let place = tempfile::tempdir().unwrap();
        let log = open(place.path());
        log.change(&[&put("a", b"old"), &put("lasting", &[1; 3500])]);
        log.change(&[&put("a", &[2; 1000]), &put("b", &[2; 2500])]);
        log.change(&[&put("c", &[3; 3500])]);
        assert_eq!(log.inside().segments.len(), 3);
        let path = files(place.path()).remove(1);
        let mut content = fs::read(&path).unwrap();
        content[BEGIN as usize + at] ^= 1;
        fs::write(&path, content).unwrap();
        log.inside().empty(1).unwrap();
        let live: u64 = log.inside().segments.iter().map(|segment| segment.live).sum();
        assert_eq!(live, log.inside().live);
        let keys =
            |log: &Log| log.load("").unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys(&log), ["b", "c", "lasting"]);
        drop(log);
        assert_eq!(keys(&open(place.path())), ["b", "c", "lasting"]);
    }
}

#[test]
fn links_and_other_files_are_not_touched() {
    let place = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), place.path().join(DIRECTORY)).unwrap();
    let error = Log::open(place.path()).unwrap_err().to_string();
    assert!(error.contains("symbolic link"), "{error}");
    fs::remove_file(place.path().join(DIRECTORY)).unwrap();
    drop(Log::open(place.path()).unwrap());
    let records = place.path().join(DIRECTORY);
    fs::create_dir(records.join("lost+found")).unwrap();
    fs::write(records.join("notes"), b"mine").unwrap();
    drop(Log::open(place.path()).unwrap());
    assert!(records.join("notes").exists());
}

#[test]
fn damage_of_an_earlier_segment_costs_what_is_damaged() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    for number in 0..8 {
        log.change(&[&put(&number.to_string(), &[number as u8; 1500])]);
    }
    drop(log);
    let first = files(place.path()).remove(0);
    let whole = fs::read(&first).unwrap();
    // The first entry's value, then its head.
    for at in [BEGIN as usize + 100, BEGIN as usize] {
        let mut content = whole.clone();
        content[at] ^= 1;
        fs::write(&first, content).unwrap();
        let keys: Vec<_> =
            open(place.path()).load("").unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["1", "2", "3", "4", "5", "6", "7"]);
    }
}

#[test]
fn a_crash_while_a_segment_is_emptied_loses_and_restores_nothing() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path());
    let long = [5; 1000];
    log.change(&[&put("lasting", &long), &put("removed", &long)]);
    log.change(&[&remove("removed")]);
    for _ in 0..4 {
        log.change(&[&put("other", &long)]);
    }
    let expected = [record("lasting", &long), record("other", &long)];
    // The records are appended again, and their segment is still there.
    let oldest = files(place.path()).remove(0);
    let content = fs::read(&oldest).unwrap();
    log.inside().empty(0).unwrap();
    drop(log);
    fs::write(&oldest, content).unwrap();
    assert_eq!(open(place.path()).load("").unwrap(), expected);
    // The last segment is sealed, and none follows.
    let log = open(place.path());
    let mut seal = Batch::new(log.inside().segments.back().unwrap().salt);
    seal.add(Kind::Seal, "", Bytes::new());
    log.inside().append(&seal).unwrap();
    drop(log);
    let log = open(place.path());
    log.change(&[&put("new", b"value")]);
    drop(log);
    let keys: Vec<_> =
        open(place.path()).load("").unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["lasting", "new", "other"]);
    // A segment without a head was being created.
    let last = files(place.path()).pop().unwrap();
    fs::write(last.with_file_name("0000ffff.log"), b"").unwrap();
    fs::write(last.with_file_name("new"), b"anything").unwrap();
    assert_eq!(open(place.path()).load("").unwrap().len(), 3);
}

#[test]
fn space_is_reserved_for_deletions() {
    if !rustix::process::geteuid().is_root() {
        return testing::skipped!("a small file system can be mounted by root only");
    }
    let place = tempfile::tempdir().unwrap();
    let small = Mounted::new(place.path());
    let log = Log::with_segments(&small.0, 256 << 10, 512 << 10, 1 << 20).unwrap();
    let reserve = small.0.join("reserve");
    assert!(reserve.exists());
    let mut kept = 0;
    while log.change(&[&put(&kept.to_string(), &[7; 10_000])]) == [Ok(())] {
        kept += 1;
        log.tidy();
    }
    assert!((200..400).contains(&kept), "{kept}");
    assert!(reserve.exists(), "nothing was made of its room");
    let new = put("new", &[7; 10_000]);
    let answers = log.change(&[&new, &put("0", b"gone"), &new]);
    assert_eq!(answers, [Err(EffectError::NoSpace), Ok(()), Err(EffectError::NoSpace)]);
    // What is removed or replaced makes room at once.
    for turn in 0..1000 {
        let answers = log.change(&[&remove("1"), &put("0", &[turn as u8; 9000])]);
        assert_eq!(answers, [Ok(()), Ok(())], "{turn}");
        log.tidy();
    }
    assert_eq!(log.change(&[&put("1", &[7; 10_000])]), [Ok(())]);
    // All can be removed again, which frees the space.
    for number in 0..kept {
        assert_eq!(log.change(&[&remove(&number.to_string())]), [Ok(())], "{number}");
        log.tidy();
    }
    assert_eq!(log.load("").unwrap(), []);
    for number in 0..kept {
        let answers = log.change(&[&put(&number.to_string(), &[7; 10_000])]);
        assert!(number > kept / 2 || answers == [Ok(())], "{number}");
        log.tidy();
    }
}

/// A file system of 4 MB.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Path) -> Self {
        use rustix::mount::{MountFlags, mount};
        let at = place.join("small");
        fs::create_dir(&at).unwrap();
        mount("tmpfs", &at, "tmpfs", MountFlags::empty(), Some(c"size=4m")).unwrap();
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}
