//! The file of a naming service: a log of changes, each flushed before its caller gets the reply.
//!
//! ```text
//!   names.log    8 octets             then records, big-endian
//!                "HYNAMES1"           length u32   CRC-32 of that   CRC-32 of the changes   the changes, in CDR
//! ```
//!
//! A snapshot is a log too. If the log is four times as long as the last snapshot, or a write failed, a snapshot is
//! written to `names.log.new`, flushed, and renamed over the log. An incomplete record at the end of the file was never
//! confirmed to a client, and is dropped. After a loss of power, zeros at the end or an empty file are repaired with a
//! warning. If the file is damaged otherwise, it is left as it is, and the service does not start.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use hyoshi_wire::ior::Ior;
use hyoshi_wire::{
    ByteOrder, CharSet, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version,
};

use crate::NameComponent;
use crate::tree::{NamingTree, Referent, TreeChange};

const MAGIC: &[u8; 8] = b"HYNAMES1";
const LOG: &str = "names.log";
const HEAD: usize = 12;
/// Octets of a record at most.
const MOST: usize = 16 << 20;
/// Octets of changes that a snapshot puts into one record.
const BATCH: usize = 64 << 10;
/// A log shorter than this is not rewritten.
const SMALL: u64 = 1 << 20;

/// The reason why names cannot be stored in a directory, or read from it.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The failed operation, its file or directory, and the system's error.
    Io(&'static str, PathBuf, io::Error),
    /// Another naming service uses the directory.
    Taken(PathBuf),
    /// The file is not a naming service's, or of a later version.
    Foreign(PathBuf),
    /// The file is damaged after so many whole octets; the mistake there.
    Damaged(PathBuf, u64, &'static str),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io(trying, path, error) => write!(f, "cannot {trying} {}: {error}", path.display()),
            StoreError::Taken(path) => {
                write!(f, "another naming service uses {}: stop it, or name another store", path.display())
            }
            StoreError::Foreign(path) => {
                let path = path.display();
                write!(
                    f,
                    "{path} is not a file of names, or of a later version; it was left as it is: name another store"
                )
            }
            StoreError::Damaged(path, whole, what) => {
                let path = path.display();
                write!(
                    f,
                    "{path} is damaged at octet {whole}: {what}. It was left as it is: restore it from a backup, or \
                     keep a copy and continue with the whole part: head -c {whole} {path} > {path}.whole"
                )
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// The open log.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// Locked as long as the log is open.
    _lock: File,
    log: File,
    /// Octets of whole records.
    length: u64,
    /// Above that length it is rewritten.
    due: u64,
    /// A write failed: the octets behind `length` are unknown.
    pub(crate) doubtful: bool,
    /// A description of the part that was cut off when it was opened.
    pub(crate) repaired: Option<String>,
}

/// The reason why changes were not stored.
#[derive(Debug)]
pub(crate) enum Unstored {
    /// None of them is in the log.
    Nothing(io::Error),
    /// Part of them was written and could not be cut off again: the next run may find it.
    Perhaps(io::Error),
}

impl Store {
    /// Reads the log of an earlier run into an empty tree, or begins a log.
    pub(crate) fn open(directory: &Path, tree: &mut NamingTree) -> Result<Store, StoreError> {
        let fail = |trying, path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Io(trying, path, error)
        };
        fs::create_dir_all(directory).map_err(fail("make the directory", directory))?;
        let path = directory.join("lock");
        let lock = File::options().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(fail("open", &path))?;
        if !hyoshi_os::file::lock(&lock).map_err(fail("lock", &path))? {
            return Err(StoreError::Taken(directory.to_owned()));
        }
        let path = directory.join(LOG);
        let old = match File::options().read(true).append(true).open(&path) {
            Ok(log) => Some(log),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(fail("open", &path)(error)),
        };
        let (whole, zeros) = old.as_ref().map_or(Ok((0, 0)), |log| replay(log, &path, tree))?;
        let shown = path.display();
        let repaired = match (&old, whole, zeros) {
            (Some(_), 0, _) => Some(format!("{shown} was empty: it begins anew, without names")),
            (_, _, 1..) => Some(format!(
                "{shown} ended in {zeros} octets of zeros, as a loss of power leaves them: they were cut off"
            )),
            _ => None,
        };
        let (log, length) = match old.filter(|_| whole > 0) {
            Some(log) => {
                // A record that was incomplete when the process ended is dropped.
                log.set_len(whole).map_err(fail("shorten", &path))?;
                (log, whole)
            }
            None => {
                let written = Snapshot::of(tree).and_then(|snapshot| write_whole(directory, &snapshot));
                written.map_err(fail("write", &path))?
            }
        };
        let directory = directory.to_owned();
        Ok(Store { directory, _lock: lock, log, length, due: SMALL.max(4 * length), doubtful: false, repaired })
    }

    /// True if the log must be rewritten before the next change: a write failed, or it is too long.
    pub(crate) fn is_due(&self) -> bool {
        self.doubtful || self.length > self.due
    }

    /// Replaces the log by a snapshot of the tree. If that fails, a log that is not doubtful continues to grow.
    pub(crate) fn write_anew(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        match write_whole(&self.directory, snapshot) {
            Ok((log, length)) => {
                (self.log, self.length, self.doubtful) = (log, length, false);
                self.due = SMALL.max(4 * length);
            }
            Err(error) if self.doubtful => return Err(error),
            Err(_) => self.due = 2 * self.length,
        }
        Ok(())
    }

    /// Stores changes, all or none.
    pub(crate) fn append(&mut self, changes: &[TreeChange]) -> Result<(), Unstored> {
        let mut to = encoder();
        let encoded = changes.iter().try_for_each(|change| change.encode(&mut to));
        let record = encoded.map_err(io::Error::other).and_then(|()| seal(to.bytes())).map_err(Unstored::Nothing)?;
        let written = self.log.write_all(&record).and_then(|()| self.log.sync_data());
        if let Err(error) = written {
            self.doubtful = true;
            // Otherwise another run could find a change that was refused.
            return match self.log.set_len(self.length).and_then(|()| self.log.sync_data()) {
                Ok(()) => Err(Unstored::Nothing(error)),
                Err(_) => Err(Unstored::Perhaps(error)),
            };
        }
        self.length += record.len() as u64;
        Ok(())
    }
}

/// Replaces the log by a snapshot. Returns the new log and its length.
fn write_whole(directory: &Path, snapshot: &Snapshot) -> io::Result<(File, u64)> {
    let (path, new) = (directory.join(LOG), directory.join("names.log.new"));
    let mut log = File::options().read(true).write(true).create(true).truncate(true).open(&new)?;
    let written = log.write_all(&snapshot.0).and_then(|()| {
        log.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        // The disk may be full.
        let _ = fs::remove_file(&new);
    }
    written.map(|()| (log, snapshot.0.len() as u64))
}

/// A tree as a log. It is made while the tree is locked, and written while it can change again.
pub(crate) struct Snapshot(Vec<u8>);

impl Snapshot {
    pub(crate) fn of(tree: &NamingTree) -> io::Result<Snapshot> {
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

/// Applies all whole records to the tree. Returns where the last one ends, 0 in an empty file, and the number of octets
/// behind it if all of them are zeros.
fn replay(log: &File, path: &Path, tree: &mut NamingTree) -> Result<(u64, u64), StoreError> {
    let io = |error| StoreError::Io("read", path.to_owned(), error);
    let size = log.metadata().map_err(io)?.len();
    if size == 0 {
        return Ok((0, 0));
    }
    let mut from = BufReader::new(log);
    let mut whole = MAGIC.len() as u64;
    let mut magic = [0; MAGIC.len()];
    if size < whole || from.read_exact(&mut magic).map_err(io).map(|()| &magic != MAGIC)? {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    loop {
        let left = size - whole;
        let damaged = |what| Err(StoreError::Damaged(path.to_owned(), whole, what));
        if left < HEAD as u64 {
            return Ok((whole, 0));
        }
        let mut head = [0; HEAD];
        from.read_exact(&mut head).map_err(io)?;
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = number(0) as usize;
        if head == [0; HEAD] && only_zeros(&mut from).map_err(io)? {
            return Ok((whole, left));
        }
        if crc32fast::hash(&head[..4]) != number(4) || length > MOST {
            return damaged("a record's head does not match its checksum");
        }
        if left < (HEAD + length) as u64 {
            return Ok((whole, 0));
        }
        let mut changes = vec![0; length];
        from.read_exact(&mut changes).map_err(io)?;
        if crc32fast::hash(&changes) != number(8) {
            return damaged("a record does not match its checksum");
        }
        let Ok(changes) = decode(&changes) else { return damaged("a record cannot be read") };
        if !changes.into_iter().all(|change| tree.apply(change)) {
            return damaged("a record does not follow from those before it");
        }
        whole += (HEAD + length) as u64;
    }
}

/// Reads to the end.
fn only_zeros(from: &mut impl BufRead) -> io::Result<bool> {
    for octet in from.bytes() {
        if octet? != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn encoder() -> Encoder {
    let mut to = Encoder::new(ByteOrder::Big);
    to.speak(Version::V1_2, CharSet::Utf8);
    to
}

/// A record of encoded changes.
fn seal(changes: &[u8]) -> io::Result<Vec<u8>> {
    if changes.len() > MOST {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let length = (changes.len() as u32).to_be_bytes();
    let sums = [crc32fast::hash(&length), crc32fast::hash(changes)].map(u32::to_be_bytes);
    Ok([length.as_slice(), sums.as_flattened(), changes].concat())
}

impl Encode for TreeChange {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        let (tag, name, referent) = match self {
            TreeChange::Bind(_, name, to) => (b'b', Some(name), Some(to)),
            TreeChange::Unbind(_, name) => (b'u', Some(name), None),
            TreeChange::Make(..) => (b'm', None, None),
            TreeChange::Destroy(..) => (b'd', None, None),
        };
        tag.encode(to)?;
        self.context().encode(to)?;
        name.map_or(Ok(()), |name| name.encode(to))?;
        match referent {
            Some(Referent::Object(ior)) => b'o'.encode(to).and_then(|()| ior.encode(to)),
            Some(Referent::Elsewhere(ior)) => b'e'.encode(to).and_then(|()| ior.encode(to)),
            Some(Referent::Here(context)) => b'h'.encode(to).and_then(|()| context.encode(to)),
            None => Ok(()),
        }
    }
}

fn decode(octets: &[u8]) -> Result<Vec<TreeChange>, DecodeError> {
    let mut from = Decoder::new(octets, ByteOrder::Big);
    from.speak(Version::V1_2, CharSet::Utf8);
    let mut changes = Vec::new();
    while from.left() > 0 {
        let (tag, context) = (u8::decode(&mut from)?, u64::decode(&mut from)?);
        changes.push(match tag {
            b'b' => {
                let name = NameComponent::decode(&mut from)?;
                let to = match u8::decode(&mut from)? {
                    b'o' => Referent::Object(Ior::decode(&mut from)?),
                    b'e' => Referent::Elsewhere(Ior::decode(&mut from)?),
                    b'h' => Referent::Here(u64::decode(&mut from)?),
                    _ => return Err(from.error(DecodeErrorKind::Value("a referent's tag"))),
                };
                TreeChange::Bind(context, name, to)
            }
            b'u' => TreeChange::Unbind(context, NameComponent::decode(&mut from)?),
            b'm' => TreeChange::Make(context),
            b'd' => TreeChange::Destroy(context),
            _ => return Err(from.error(DecodeErrorKind::Value("a change's tag"))),
        });
    }
    Ok(changes)
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

        fn open(&self) -> (Store, NamingTree) {
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

    fn empty() -> NamingTree {
        NamingTree::new(NamingLimits::default())
    }

    fn bind(name: &str) -> TreeChange {
        let ior = Ior { type_id: "IDL:T:1.0".into(), profiles: vec![Profile { tag: 0, data: vec![1; 40] }] };
        TreeChange::Bind(ROOT, parse(name).unwrap().remove(0), Referent::Object(ior))
    }

    fn keep(store: &mut Store, tree: &mut NamingTree, changes: &[TreeChange]) {
        if store.is_due() {
            store.write_anew(&Snapshot::of(tree).unwrap()).unwrap();
        }
        store.append(changes).unwrap();
        changes.iter().for_each(|change| assert!(tree.apply(change.clone())));
    }

    fn same(one: &NamingTree, other: &NamingTree) {
        let all = |tree: &NamingTree| {
            let mut all: Vec<_> = tree.snapshot().map(|change| format!("{change:?}")).collect();
            all.sort();
            all
        };
        assert_eq!(all(one), all(other));
    }

    /// All kinds of changes.
    fn filled(place: &Place) -> NamingTree {
        let (mut store, mut tree) = place.open();
        keep(&mut store, &mut tree, &[bind("a.kind")]);
        let far = Referent::Elsewhere(Ior { type_id: String::new(), profiles: vec![] });
        let name = |text: &str| parse(text).unwrap().remove(0);
        let far = TreeChange::Bind(ROOT, name("fär"), far);
        let here = TreeChange::Bind(ROOT, name("here"), Referent::Here(1));
        keep(&mut store, &mut tree, &[TreeChange::Make(1), here, far]);
        keep(&mut store, &mut tree, &[TreeChange::Make(2)]);
        keep(&mut store, &mut tree, &[TreeChange::Destroy(2)]);
        keep(&mut store, &mut tree, &[bind("b"), TreeChange::Unbind(ROOT, name("a.kind"))]);
        tree
    }

    #[test]
    fn a_reopened_store_has_the_same_names() {
        let place = Place::new();
        let tree = filled(&place);
        let (mut store, again) = place.open();
        same(&tree, &again);
        store.write_anew(&Snapshot::of(&again).unwrap()).unwrap();
        drop(store);
        same(&tree, &place.open().1);
    }

    #[test]
    fn a_record_cut_off_at_any_octet_loses_no_other_record() {
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
                StoreError::Damaged(_, whole, _) => assert!(whole <= at as u64, "{at}: {error}"),
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
            assert_eq!(store.repaired.is_some(), zeros >= HEAD, "{zeros}");
            assert!(store.repaired.as_ref().is_none_or(|what| what.contains(&format!("{zeros} octets of zeros"))));
            drop(store);
            assert_eq!(place.log(), log);
            assert_eq!(place.open().0.repaired, None, "once");
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
        assert!(store.repaired.as_ref().unwrap().contains("was empty"));
        keep(&mut store, &mut tree, &[bind("a")]);
        drop(store);
        let (store, again) = place.open();
        same(&tree, &again);
        assert_eq!(store.repaired, None);
    }

    #[test]
    fn an_error_reports_whether_the_change_may_be_in_the_log() {
        let place = Place::new();
        let (mut store, mut tree) = place.open();
        keep(&mut store, &mut tree, &[bind("a")]);
        // Too large for a record: nothing is written.
        let huge = Ior { type_id: String::new(), profiles: vec![Profile { tag: 0, data: vec![0; MOST] }] };
        let name = parse("huge").unwrap().remove(0);
        let refused = store.append(&[TreeChange::Bind(ROOT, name, Referent::Object(huge))]);
        assert!(matches!(refused, Err(Unstored::Nothing(_))), "{refused:?}");
        // A file that cannot be written cannot be cut back either.
        store.log = File::open(place.0.join(LOG)).unwrap();
        assert!(matches!(store.append(&[bind("b")]), Err(Unstored::Perhaps(_))));
    }

    #[test]
    fn a_directory_belongs_to_one_service_at_a_time() {
        let place = Place::new();
        let (_store, _) = place.open();
        let error = place.refused();
        assert!(matches!(error, StoreError::Taken(_)), "{error}");
    }

    #[test]
    fn after_a_full_disk_refused_a_change_later_ones_are_stored() {
        let place = Place::new();
        let (mut store, mut tree) = place.open();
        keep(&mut store, &mut tree, &[bind("a")]);
        store.log = File::options().write(true).open("/dev/full").unwrap();
        // A device cannot be shortened, so its content is unknown.
        let Unstored::Perhaps(error) = store.append(&[bind("b")]).unwrap_err() else { panic!("it cannot be known") };
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

        /// For all changes and all places to cut the log: what comes back is the tree after some of the changes, in
        /// their order, and all those before the cut.
        #[test]
        fn a_log_cut_anywhere_restores_the_tree_of_that_time(
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
                    _ => tree.rebind(context, &name, Referent::Object(ior)).map(|change| vec![change]),
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
        /// Its changes; the order of contexts is not defined.
        fn sorted(&self) -> Vec<String> {
            let (mut changes, mut at) = (Vec::new(), MAGIC.len());
            while at < self.0.len() {
                let length = u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap()) as usize;
                changes.extend(decode(&self.0[at + HEAD..at + HEAD + length]).unwrap());
                at += HEAD + length;
            }
            let mut all: Vec<_> = changes.iter().map(|change| format!("{change:?}")).collect();
            all.sort();
            all
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
