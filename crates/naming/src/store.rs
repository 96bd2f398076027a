//! The files of a naming service: a log of changes, each flushed before its caller gets the reply.
//!
//! ```text
//!   names.log    8 octets             then records, big-endian
//!                "HYNAMES1"           length u32   CRC-32 of that   CRC-32 of the changes   the changes, in CDR
//! ```
//!
//! A snapshot is a log too: it is written to `names.log.new`, flushed, and renamed over the old one, when the log has
//! grown to several times what a snapshot takes, and when a write failed so that the log's end is in doubt. A record
//! that stops short at the end of the file was never confirmed to a client: the process was killed while writing it.
//! If the machine loses power, a file system can leave zeros in such a record's place, or an empty file; both are cut
//! back, with a warning. Any other damage is refused, and the file left as it is.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hyoshi_wire::ior::Ior;
use hyoshi_wire::{
    ByteOrder, CharSet, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version,
};

use crate::NameComponent;
use crate::tree::{Bound, Change, Tree};

const MAGIC: &[u8; 8] = b"HYNAMES1";
const LOG: &str = "names.log";
const HEAD: usize = 12;
/// Octets of a record at most.
const MOST: usize = 16 << 20;
/// Octets of changes that a snapshot puts into one record.
const BATCH: usize = 64 << 10;
/// A log shorter than this is not worth writing anew.
const SMALL: u64 = 1 << 20;

/// The reason why names cannot be stored in a directory, or read from it.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refused.
    Io {
        /// The failed operation.
        trying: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another naming service works with the directory.
    Taken(PathBuf),
    /// The file is none of a naming service's, or of a later version of it.
    Foreign(PathBuf),
    /// Something happened to the file.
    Damaged {
        /// Which.
        path: PathBuf,
        /// Everything before this octet is whole.
        whole: u64,
        /// What is wrong there.
        what: &'static str,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io { trying, path, error } => write!(f, "cannot {trying} {}: {error}", path.display()),
            StoreError::Taken(path) => {
                write!(
                    f,
                    "another naming service keeps its names in {}: stop it, or name another store",
                    path.display()
                )
            }
            StoreError::Foreign(path) => write!(
                f,
                "{} is no file of names, or one of a later version; it was left as it is: name another store",
                path.display()
            ),
            StoreError::Damaged { path, whole, what } => write!(
                f,
                "{0} is damaged at octet {whole}: {what}. It was left as it is: restore it from a backup, or keep a \
                 copy and go on with what is whole: head -c {whole} {0} > {0}.whole",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StoreError {}

/// The log, open.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// Held as long as the log is open.
    _lock: File,
    log: File,
    /// Octets of whole records.
    length: u64,
    /// Above that length it is written anew.
    due: u64,
    /// A write failed: what is behind `length` is not known.
    doubtful: bool,
    /// What was cut when it was opened.
    repaired: Option<String>,
}

/// The reason why changes were not stored.
#[derive(Debug)]
pub(crate) enum Unkept {
    /// Nothing of them is in the log.
    Not(io::Error),
    /// Part of them was written and could not be cut off again: the next run may find it.
    Perhaps(io::Error),
}

impl Store {
    /// Reads what an earlier run left into an empty tree, or begins a log.
    pub(crate) fn open(directory: &Path, tree: &mut Tree) -> Result<Store, StoreError> {
        let fail = |trying, path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Io { trying, path, error }
        };
        fs::create_dir_all(directory).map_err(fail("make the directory", directory))?;
        let path = directory.join("lock");
        let lock = File::options().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(fail("open", &path))?;
        if !hyoshi_os::file::lock(&lock).map_err(fail("lock", &path))? {
            return Err(StoreError::Taken(directory.to_owned()));
        }
        let path = directory.join(LOG);
        let mut repaired = None;
        let opened = match File::options().read(true).write(true).open(&path) {
            Ok(mut log) => match replay(&log, &path, tree)? {
                Replayed::Empty => {
                    repaired = Some(format!("{} was empty: it begins anew, without names", path.display()));
                    None
                }
                Replayed::To { length, zeros } => {
                    if zeros > 0 {
                        repaired = Some(format!(
                            "{} ended in {zeros} octets of zeros, as a loss of power leaves them: they were cut off",
                            path.display()
                        ));
                    }
                    // A record that was incomplete when the process ended is dropped.
                    log.set_len(length).map_err(fail("shorten", &path))?;
                    log.seek(SeekFrom::Start(length)).map_err(fail("seek in", &path))?;
                    Some((log, length))
                }
            },
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(fail("open", &path)(error)),
        };
        let (log, length) = match opened {
            Some(opened) => opened,
            None => {
                let written = Snapshot::of(tree).and_then(|snapshot| write_whole(directory, &snapshot));
                written.map_err(fail("write", &path))?
            }
        };
        let directory = directory.to_owned();
        Ok(Store { directory, _lock: lock, log, length, due: SMALL.max(4 * length), doubtful: false, repaired })
    }

    /// What was cut when it was opened, if anything.
    pub(crate) fn repaired(&self) -> Option<&str> {
        self.repaired.as_deref()
    }

    /// True if the last write failed.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// True if the log is to be written anew before something is added: a write failed, or it has grown long.
    pub(crate) fn is_due(&self) -> bool {
        self.doubtful || self.length > self.due
    }

    /// Puts a snapshot of the tree in the log's place. If it cannot, that matters only to a doubtful log; the other
    /// goes on growing.
    pub(crate) fn write_anew(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        match write_whole(&self.directory, snapshot) {
            Ok((log, length)) => (self.log, self.length) = (log, length),
            Err(error) if self.doubtful => return Err(error),
            Err(_) => {
                self.due = 2 * self.length;
                return Ok(());
            }
        }
        self.due = SMALL.max(4 * self.length);
        self.doubtful = false;
        Ok(())
    }

    /// Keeps changes, all or none.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<(), Unkept> {
        let record = record(changes).map_err(|_| Unkept::Not(ErrorKind::InvalidData.into()))?;
        let written = self.log.write_all(&record).and_then(|()| self.log.sync_data());
        if let Err(error) = written {
            self.doubtful = true;
            // Otherwise another run could find a change that was refused.
            return match self.log.set_len(self.length).and_then(|()| self.log.sync_data()) {
                Ok(()) => Err(Unkept::Not(error)),
                Err(_) => Err(Unkept::Perhaps(error)),
            };
        }
        self.length += record.len() as u64;
        Ok(())
    }
}

/// Writes a snapshot in the log's place; the log, and its length.
fn write_whole(directory: &Path, snapshot: &Snapshot) -> io::Result<(File, u64)> {
    let (path, new) = (directory.join(LOG), directory.join("names.log.new"));
    let mut log = File::options().read(true).write(true).create(true).truncate(true).open(&new)?;
    let written = log.write_all(&snapshot.0).and_then(|()| {
        log.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        // The space may be what is missing.
        let _ = fs::remove_file(&new);
    }
    written.map(|()| (log, snapshot.0.len() as u64))
}

/// A tree as the octets of a log: made while the tree stands still, written when it may change again.
pub(crate) struct Snapshot(Vec<u8>);

impl Snapshot {
    pub(crate) fn of(tree: &Tree) -> io::Result<Snapshot> {
        let mut log = MAGIC.to_vec();
        let mut batch = encoder();
        let mut changes = tree.snapshot().peekable();
        while let Some(change) = changes.next() {
            change.encode(&mut batch).map_err(io::Error::other)?;
            if batch.len() >= BATCH || changes.peek().is_none() {
                log.extend(seal(batch.bytes())?);
                batch = encoder();
            }
        }
        Ok(Snapshot(log))
    }
}

/// How far a log reaches.
#[derive(Debug, PartialEq, Eq)]
enum Replayed {
    /// Not even its first octets are there.
    Empty,
    /// To the end of its last whole record. This many octets follow, and all of them are zeros.
    To { length: u64, zeros: u64 },
}

/// Reads all whole records.
fn replay(log: &File, path: &Path, tree: &mut Tree) -> Result<Replayed, StoreError> {
    let io = |error| StoreError::Io { trying: "read", path: path.to_owned(), error };
    let size = log.metadata().map_err(io)?.len();
    let mut from = BufReader::new(log);
    let mut magic = [0; MAGIC.len()];
    if size == 0 {
        return Ok(Replayed::Empty);
    }
    if size < magic.len() as u64 {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    from.read_exact(&mut magic).map_err(io)?;
    if &magic != MAGIC {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    let mut whole = magic.len() as u64;
    loop {
        let left = size - whole;
        let damaged = |what| Err(StoreError::Damaged { path: path.to_owned(), whole, what });
        if left < HEAD as u64 {
            return Ok(Replayed::To { length: whole, zeros: 0 });
        }
        let mut head = [0; HEAD];
        from.read_exact(&mut head).map_err(io)?;
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = number(0) as usize;
        if head == [0; HEAD] && only_zeros(&mut from).map_err(io)? {
            return Ok(Replayed::To { length: whole, zeros: left });
        }
        if crc32fast::hash(&head[..4]) != number(4) || length > MOST {
            return damaged("a record's head does not hold its checksum");
        }
        if left < (HEAD + length) as u64 {
            return Ok(Replayed::To { length: whole, zeros: 0 });
        }
        let mut changes = vec![0; length];
        from.read_exact(&mut changes).map_err(io)?;
        if crc32fast::hash(&changes) != number(8) {
            return damaged("a record does not hold its checksum");
        }
        let Ok(changes) = get_all(&changes) else { return damaged("a record cannot be read") };
        if !changes.into_iter().all(|change| tree.apply(change)) {
            return damaged("a record does not follow from those before it");
        }
        whole += (HEAD + length) as u64;
    }
}

/// Reads to the end.
fn only_zeros(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let octets = from.fill_buf()?;
        if octets.is_empty() {
            return Ok(true);
        }
        if octets.iter().any(|octet| *octet != 0) {
            return Ok(false);
        }
        let count = octets.len();
        from.consume(count);
    }
}

fn encoder() -> Encoder {
    let mut to = Encoder::new(ByteOrder::Big);
    to.speak(Version::V1_2, CharSet::Utf8);
    to
}

fn record(changes: &[Change]) -> io::Result<Vec<u8>> {
    let mut to = encoder();
    changes.iter().try_for_each(|change| change.encode(&mut to)).map_err(io::Error::other)?;
    seal(to.bytes())
}

fn seal(changes: &[u8]) -> io::Result<Vec<u8>> {
    if changes.len() > MOST {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let length = (changes.len() as u32).to_be_bytes();
    let sums = [crc32fast::hash(&length), crc32fast::hash(changes)].map(u32::to_be_bytes);
    Ok([length.as_slice(), sums.as_flattened(), changes].concat())
}

impl Encode for Change {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        let (tag, context, name) = match self {
            Change::Bind { context, name, .. } => (b'b', context, Some(name)),
            Change::Unbind { context, name } => (b'u', context, Some(name)),
            Change::Make { context } => (b'm', context, None),
            Change::Destroy { context } => (b'd', context, None),
        };
        tag.encode(to)?;
        context.encode(to)?;
        name.map_or(Ok(()), |name| name.encode(to))?;
        match self {
            Change::Bind { to: Bound::Object(ior), .. } => b'o'.encode(to).and_then(|()| ior.encode(to)),
            Change::Bind { to: Bound::Elsewhere(ior), .. } => b'e'.encode(to).and_then(|()| ior.encode(to)),
            Change::Bind { to: Bound::Here(context), .. } => b'h'.encode(to).and_then(|()| context.encode(to)),
            _ => Ok(()),
        }
    }
}

fn get_all(octets: &[u8]) -> Result<Vec<Change>, DecodeError> {
    let mut from = Decoder::new(octets, ByteOrder::Big);
    from.speak(Version::V1_2, CharSet::Utf8);
    let mut changes = Vec::new();
    while from.left() > 0 {
        changes.push(get(&mut from)?);
    }
    Ok(changes)
}

fn get(from: &mut Decoder<'_>) -> Result<Change, DecodeError> {
    let tag = u8::decode(from)?;
    let context = u64::decode(from)?;
    Ok(match tag {
        b'b' => {
            let name = NameComponent::decode(from)?;
            let to = match u8::decode(from)? {
                b'o' => Bound::Object(Ior::decode(from)?),
                b'e' => Bound::Elsewhere(Ior::decode(from)?),
                b'h' => Bound::Here(u64::decode(from)?),
                _ => return Err(from.error(DecodeErrorKind::Value("nothing that can be bound"))),
            };
            Change::Bind { context, name, to }
        }
        b'u' => Change::Unbind { context, name: NameComponent::decode(from)? },
        b'm' => Change::Make { context },
        b'd' => Change::Destroy { context },
        _ => return Err(from.error(DecodeErrorKind::Value("no change"))),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use hyoshi_wire::ior::Profile;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::name::parse;
    use crate::tree::{NamingLimits, ROOT};

    struct Place(PathBuf);

    impl Place {
        fn new() -> Place {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            Place(std::env::temp_dir().join(format!("hyoshi-names-{}-{number}", std::process::id())))
        }

        fn open(&self) -> (Store, Tree) {
            let mut tree = empty();
            (Store::open(&self.0, &mut tree).unwrap(), tree)
        }

        fn refused(&self) -> StoreError {
            Store::open(&self.0, &mut empty()).unwrap_err()
        }

        fn log(&self) -> Vec<u8> {
            fs::read(self.0.join(LOG)).unwrap()
        }

        fn set_log(&self, octets: &[u8]) {
            fs::write(self.0.join(LOG), octets).unwrap();
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn empty() -> Tree {
        Tree::new(NamingLimits::default())
    }

    fn bind(name: &str) -> Change {
        let ior = Ior { type_id: "IDL:T:1.0".into(), profiles: vec![Profile { tag: 0, data: vec![1; 40] }] };
        Change::Bind { context: ROOT, name: parse(name).unwrap().remove(0), to: Bound::Object(ior) }
    }

    fn keep(store: &mut Store, tree: &mut Tree, changes: &[Change]) {
        if store.is_due() {
            store.write_anew(&Snapshot::of(tree).unwrap()).unwrap();
        }
        store.append(changes).unwrap();
        changes.iter().for_each(|change| assert!(tree.apply(change.clone())));
    }

    fn same(one: &Tree, other: &Tree) {
        let all = |tree: &Tree| {
            let mut all: Vec<_> = tree.snapshot().map(|change| format!("{change:?}")).collect();
            all.sort();
            all
        };
        assert_eq!(all(one), all(other));
    }

    /// All kinds of changes.
    fn filled(place: &Place) -> Tree {
        let (mut store, mut tree) = place.open();
        keep(&mut store, &mut tree, &[bind("a.kind")]);
        let far = Bound::Elsewhere(Ior { type_id: String::new(), profiles: vec![] });
        let name = |text: &str| parse(text).unwrap().remove(0);
        let far = Change::Bind { context: ROOT, name: name("fär"), to: far };
        let here = Change::Bind { context: ROOT, name: name("here"), to: Bound::Here(1) };
        keep(&mut store, &mut tree, &[Change::Make { context: 1 }, here, far]);
        keep(&mut store, &mut tree, &[Change::Make { context: 2 }]);
        keep(&mut store, &mut tree, &[Change::Destroy { context: 2 }]);
        keep(&mut store, &mut tree, &[bind("b"), Change::Unbind { context: ROOT, name: name("a.kind") }]);
        tree
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let place = Place::new();
        let tree = filled(&place);
        let (mut store, again) = place.open();
        same(&tree, &again);
        store.write_anew(&Snapshot::of(&again).unwrap()).unwrap();
        drop(store);
        same(&tree, &place.open().1);
    }

    #[test]
    fn a_record_cut_off_at_any_octet_takes_nothing_else_with_it() {
        let place = Place::new();
        let (mut store, mut tree) = place.open();
        keep(&mut store, &mut tree, &[bind("a")]);
        let whole = place.log().len();
        keep(&mut store, &mut tree, &[bind("b")]);
        drop(store);
        let log = place.log();
        for cut in whole..log.len() {
            place.set_log(&log[..cut]);
            let (mut store, mut tree) = place.open();
            assert_eq!(tree.size().0, 1, "cut at {cut}");
            keep(&mut store, &mut tree, &[bind("c")]);
            drop(store);
            assert_eq!(place.open().1.size().0, 2);
        }
    }

    #[test]
    fn damage_anywhere_is_refused_and_the_file_left_as_it_is() {
        let place = Place::new();
        filled(&place);
        let log = place.log();
        for at in 0..log.len() {
            let mut damaged = log.clone();
            damaged[at] ^= 0x10;
            place.set_log(&damaged);
            let error = place.refused();
            match error {
                StoreError::Foreign(_) => assert!(at < MAGIC.len()),
                StoreError::Damaged { whole, .. } => assert!(whole <= at as u64, "{at}: {error}"),
                _ => panic!("{at}: {error}"),
            }
            assert!(error.to_string().contains("left as it is"));
            assert_eq!(place.log(), damaged);
        }
        place.set_log(b"HYNA");
        assert!(matches!(place.refused(), StoreError::Foreign(_)));
    }

    #[test]
    fn zeros_behind_the_last_record_are_cut_back_with_a_warning() {
        let place = Place::new();
        let tree = filled(&place);
        let log = place.log();
        for zeros in [1, 11, 12, 13, 4096, 100_000] {
            place.set_log(&[log.clone(), vec![0; zeros]].concat());
            let (store, again) = place.open();
            same(&tree, &again);
            // Fewer octets than a record's head may be the start of a record that was cut off.
            assert_eq!(store.repaired().is_some(), zeros >= HEAD, "{zeros}");
            assert!(store.repaired().is_none_or(|what| what.contains(&format!("{zeros} octets of zeros"))));
            drop(store);
            assert_eq!(place.log(), log);
            assert_eq!(place.open().0.repaired(), None, "once");
        }
        // A writer added octets after them: that is damage.
        place.set_log(&[log, vec![0; 4096], vec![1]].concat());
        assert!(matches!(place.refused(), StoreError::Damaged { .. }));
    }

    #[test]
    fn an_empty_log_begins_anew_with_a_warning() {
        let place = Place::new();
        drop(place.open());
        place.set_log(b"");
        let (mut store, mut tree) = place.open();
        assert!(store.repaired().unwrap().contains("was empty"));
        keep(&mut store, &mut tree, &[bind("a")]);
        drop(store);
        let (store, again) = place.open();
        same(&tree, &again);
        assert_eq!(store.repaired(), None);
    }

    #[test]
    fn whether_a_change_was_kept_is_said_as_far_as_it_is_known() {
        let place = Place::new();
        let (mut store, mut tree) = place.open();
        keep(&mut store, &mut tree, &[bind("a")]);
        // Too large for a record: nothing is written.
        let huge = Ior { type_id: String::new(), profiles: vec![Profile { tag: 0, data: vec![0; MOST] }] };
        let name = parse("huge").unwrap().remove(0);
        let refused = store.append(&[Change::Bind { context: ROOT, name, to: Bound::Object(huge) }]);
        assert!(matches!(refused, Err(Unkept::Not(_))), "{refused:?}");
        // A file that cannot be written cannot be cut back either.
        store.log = File::open(place.0.join(LOG)).unwrap();
        assert!(matches!(store.append(&[bind("b")]), Err(Unkept::Perhaps(_))));
    }

    #[test]
    fn a_directory_serves_one_at_a_time() {
        let place = Place::new();
        let (_store, _) = place.open();
        let error = place.refused();
        assert!(matches!(error, StoreError::Taken(_)), "{error}");
    }

    #[test]
    fn a_full_disk_refuses_the_change_and_later_ones_are_kept_again() {
        let place = Place::new();
        let (mut store, mut tree) = place.open();
        keep(&mut store, &mut tree, &[bind("a")]);
        store.log = File::options().write(true).open("/dev/full").unwrap();
        // A device cannot be shortened, so its content is unknown.
        let Unkept::Perhaps(error) = store.append(&[bind("b")]).unwrap_err() else { panic!("it cannot be known") };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(store.is_due());
        // Nor is there space for a new log.
        fs::create_dir(place.0.join("names.log.new")).unwrap();
        assert!(store.write_anew(&Snapshot::of(&tree).unwrap()).is_err() && store.is_due());
        fs::remove_dir(place.0.join("names.log.new")).unwrap();
        keep(&mut store, &mut tree, &[bind("c")]);
        drop(store);
        same(&tree, &place.open().1);
    }

    proptest! {
        // Each flushes to the disk a dozen times.
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is bound and unbound, and wherever the log is cut: what comes back is the tree after some of
        /// the changes, in their order, and all those before the cut.
        #[test]
        fn a_log_cut_anywhere_gives_the_tree_at_that_time(
            steps in vec((0_u8..5, 0_u64..4, "[a-cé]{0,2}"), 0..20),
            anew in 0_usize..20,
            cut in any::<Index>(),
        ) {
            let place = Place::new();
            let (mut store, mut tree) = place.open();
            let mut times = vec![(store.length, Snapshot::of(&tree).unwrap().sorted())];
            for (at, (what, context, id)) in steps.into_iter().enumerate() {
                let name = [NameComponent { id, kind: String::new() }];
                let ior = Ior { type_id: "T".into(), profiles: vec![] };
                let decided = match what {
                    0 => tree.make().map(|change| vec![change]),
                    1 => tree.bind_new(context, &name).map(Vec::from),
                    2 => tree.unbind(context, &name).map(|change| vec![change]),
                    3 => tree.destroy(context).map(|change| vec![change]),
                    _ => tree.rebind(context, &name, Bound::Object(ior)).map(|change| vec![change]),
                };
                if at == anew {
                    store.write_anew(&Snapshot::of(&tree).unwrap()).unwrap();
                    times = vec![(store.length, Snapshot::of(&tree).unwrap().sorted())];
                }
                if let Ok(changes) = decided {
                    keep(&mut store, &mut tree, &changes);
                    times.push((store.length, Snapshot::of(&tree).unwrap().sorted()));
                }
            }
            drop(store);
            let log = place.log();
            let first = times[0].0 as usize;
            let cut = first + cut.index(log.len() - first + 1);
            place.set_log(&log[..cut]);
            let then = times.iter().rev().find(|(length, _)| *length as usize <= cut).unwrap();
            prop_assert_eq!(&Snapshot::of(&place.open().1).unwrap().sorted(), &then.1);
        }
    }

    impl Snapshot {
        /// Its changes, as contexts come in no order.
        fn sorted(&self) -> Vec<String> {
            let (mut changes, mut at) = (Vec::new(), MAGIC.len());
            while at < self.0.len() {
                let length = u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap()) as usize;
                changes.extend(get_all(&self.0[at + HEAD..at + HEAD + length]).unwrap());
                at += HEAD + length;
            }
            let mut told: Vec<_> = changes.iter().map(|change| format!("{change:?}")).collect();
            told.sort();
            told
        }
    }

    #[test]
    fn a_log_grown_long_is_written_anew() {
        let place = Place::new();
        let (mut store, mut tree) = place.open();
        store.due = 2000;
        for _ in 0..100 {
            keep(&mut store, &mut tree, &[bind("a")]);
            store.due = store.due.min(2000);
        }
        assert!(store.length <= 2400 && place.log().len() as u64 == store.length, "{}", store.length);
        drop(store);
        same(&tree, &place.open().1);
    }
}
