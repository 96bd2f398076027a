//! Paths that no other user controls.
//!
//! A program with root's rights must not open a file through a directory that another user can change: that user could
//! replace the file by a link, or by a file of their own. So each path is walked from `/`, one name at a time, by
//! directory descriptor (openat(2) with `O_NOFOLLOW`):
//!
//! | on the path | accepted if |
//! |---|---|
//! | a directory | root or this user owns it, and no other user may write to it |
//! | the same, with the sticky bit | also if others may write, as to `/tmp`: they replace only their own entries |
//! | the same, of a system group | also if that group may write to it, as `syslog` may to `/var/log` on Ubuntu |
//! | a link | root or this user owns it; it is followed by the same rules |
//!
//! These two exceptions do not apply to the directory of the file: there other users could create a file before this
//! process does. The file itself is never a link, belongs to root or this user, and no other user may write to it.
//! Write permissions of groups and users in an access list appear in the permissions of the group (acl(5)).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fcntl_setfl, fstat, mkdirat, openat, readlinkat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// A directory with a path that no other user controls. Its files are opened by its descriptor, so replacing a
/// directory above it no longer has an effect.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
    user: u32,
}

/// The mode of opening a file. A new file gets mode 600.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Lines are appended. It may be a device, such as `/dev/null`.
    Appending,
    /// It is read, and written at any place.
    Changing,
    /// It is created: no file of that name may exist.
    Making,
}

/// Why a path is not used.
#[derive(Debug)]
#[non_exhaustive]
pub enum UntrustedPath {
    /// Another user owns it, or may write to it.
    Open {
        /// The directory, link or file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The file itself is a link.
    Link(PathBuf),
    /// It is neither a directory nor a regular file.
    Kind(PathBuf),
    /// It cannot be opened or created.
    System {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Links followed on one path, as many as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Groups below this are the system's: root decides who is in them (`SYS_GID_MAX`, login.defs(5)).
const SYSTEM_GROUPS: u32 = 1000;
/// Group `users`, in which some distributions put all users.
const USERS: u32 = 100;

impl Folder {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// If it does not exist, or another user controls its path.
    pub fn open(path: &Path) -> Result<Folder, UntrustedPath> {
        Folder::of_user(path, None, geteuid().as_raw())
    }

    /// Opens a directory. Creates it, and missing directories above it, with these permissions.
    ///
    /// # Errors
    ///
    /// If it cannot be created, or another user controls its path.
    pub fn make(path: &Path, mode: u32) -> Result<Folder, UntrustedPath> {
        Folder::of_user(path, Some(mode), geteuid().as_raw())
    }

    /// The directory of a file, and the file's name.
    ///
    /// # Errors
    ///
    /// As for [`Folder::open`], and if the path ends without a name.
    pub fn of_file(path: &Path) -> Result<(Folder, OsString), UntrustedPath> {
        let Some(name) = path.file_name() else { return Err(system(path, Errno::ISDIR)) };
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok((Folder::open(above)?, name.to_owned()))
    }

    fn of_user(path: &Path, make: Option<u32>, user: u32) -> Result<Folder, UntrustedPath> {
        let OpenedPath { descriptor, stat, path } = walk(path, make, user)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(system(&path, Errno::NOTDIR));
        }
        check(&stat, &path, user, PathComponent::Last)?;
        Ok(Folder { descriptor, path, user })
    }

    /// Its path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or created, if it is a link or not a file, or if other users may write to it.
    pub fn file(&self, name: &OsStr, purpose: OpenMode) -> Result<File, UntrustedPath> {
        let path = self.path.join(name);
        let (access, kept) = match purpose {
            OpenMode::Appending => (OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, OFlags::APPEND),
            OpenMode::Changing => (OFlags::RDWR | OFlags::CREATE, OFlags::empty()),
            OpenMode::Making => (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, OFlags::empty()),
        };
        // Not blocking: detects a pipe in its place without waiting for it.
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let opened =
            openat(&self.descriptor, name, flags, Mode::from_raw_mode(0o600)).map_err(|errno| match errno {
                Errno::LOOP => UntrustedPath::Link(path.clone()),
                Errno::NXIO => UntrustedPath::Kind(path.clone()),
                errno => system(&path, errno),
            })?;
        let stat = fstat(&opened).map_err(|errno| system(&path, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => check(&stat, &path, self.user, PathComponent::Last)?,
            FileType::CharacterDevice if purpose == OpenMode::Appending => {}
            _ => return Err(UntrustedPath::Kind(path)),
        }
        fcntl_setfl(&opened, kept).map_err(|errno| system(&path, errno))?;
        Ok(opened.into())
    }

    /// Creates an empty file; replaces any of that name.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn create_empty(&self, name: &OsStr) -> io::Result<File> {
        match unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(system(&self.path.join(name), errno).into()),
        }
        Ok(self.file(name, OpenMode::Making)?)
    }

    /// Replaces a file: writes it under the name `beside`, then renames it. The file stays open.
    ///
    /// # Errors
    ///
    /// If it cannot be written; the old file remains.
    pub fn replace(&self, name: &OsStr, beside: &OsStr, text: &[u8]) -> io::Result<File> {
        let mut file = self.create_empty(beside)?;
        io::Write::write_all(&mut file, text)?;
        self.rename(beside, name)?;
        Ok(file)
    }

    /// Renames a file; replaces any file of that name.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.descriptor, from, &self.descriptor, to)?)
    }
}

/// The path, without links, of a file to read, if only root and this user can have written it or can replace it.
///
/// # Errors
///
/// If it does not exist, or another user controls it or its path.
pub fn file(path: &Path) -> Result<PathBuf, UntrustedPath> {
    file_of(path, geteuid().as_raw())
}

/// The same, for a user.
pub(crate) fn file_of(path: &Path, user: u32) -> Result<PathBuf, UntrustedPath> {
    let OpenedPath { stat, path, .. } = walk(path, None, user)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => check(&stat, &path, user, PathComponent::Last).map(|()| path),
        _ => Err(UntrustedPath::Kind(path)),
    }
}

/// The target of a path, as it was opened (`O_PATH`).
struct OpenedPath {
    descriptor: OwnedFd,
    stat: Stat,
    /// Without links.
    path: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PathComponent {
    OnTheWay,
    Last,
}

/// Follows a path by the rules of the module. Its last element is not checked yet.
fn walk(path: &Path, make: Option<u32>, user: u32) -> Result<OpenedPath, UntrustedPath> {
    let whole = std::path::absolute(path).map_err(|error| UntrustedPath::System { path: path.to_owned(), error })?;
    let mut names: VecDeque<OsString> = names(&whole).collect();
    let mut at = root()?;
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        if FileType::from_raw_mode(at.stat.st_mode) != FileType::Directory {
            return Err(system(&at.path, Errno::NOTDIR));
        }
        check(&at.stat, &at.path, user, PathComponent::OnTheWay)?;
        let mut path = at.path.clone();
        if name == ".." {
            path.pop();
        } else {
            path.push(&name);
        }
        let (descriptor, stat) = step(&at.descriptor, &name, make).map_err(|errno| system(&path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            if stat.st_uid != 0 && stat.st_uid != user {
                return Err(UntrustedPath::Open { path, owner: stat.st_uid, mode: stat.st_mode & 0o7777 });
            }
            links += 1;
            let to = if links > MOST_LINKS { Err(Errno::LOOP) } else { readlinkat(&descriptor, "", Vec::new()) };
            let to = PathBuf::from(OsString::from_vec(to.map_err(|errno| system(&path, errno))?.into_bytes()));
            if to.is_absolute() {
                at = root()?;
            }
            self::names(&to).collect::<Vec<_>>().into_iter().rev().for_each(|name| names.push_front(name));
            continue;
        }
        at = OpenedPath { descriptor, stat, path };
    }
    Ok(at)
}

/// The next name: the existing entry, or a new directory.
fn step(at: &OwnedFd, name: &OsStr, make: Option<u32>) -> Result<(OwnedFd, Stat), Errno> {
    let look = || openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let found = look().or_else(|errno| match make {
        Some(mode) if errno == Errno::NOENT => {
            match mkdirat(at.as_fd(), name, Mode::from_raw_mode(mode)) {
                // Another process may have created it just now; its owner is checked at the next name.
                Ok(()) | Err(Errno::EXIST) => look(),
                Err(errno) => Err(errno),
            }
        }
        _ => Err(errno),
    })?;
    let stat = fstat(&found)?;
    Ok((found, stat))
}

fn root() -> Result<OpenedPath, UntrustedPath> {
    let path = PathBuf::from("/");
    let opened = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let found = opened.and_then(|descriptor| Ok((fstat(&descriptor)?, descriptor)));
    let (stat, descriptor) = found.map_err(|errno| system(&path, errno))?;
    Ok(OpenedPath { descriptor, stat, path })
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn check(stat: &Stat, path: &Path, user: u32, place: PathComponent) -> Result<(), UntrustedPath> {
    let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
    let foreign = owner != 0 && owner != user;
    let on_the_way = place == PathComponent::OnTheWay;
    let sticky = on_the_way && mode & 0o1000 != 0;
    let system = on_the_way && stat.st_gid < SYSTEM_GROUPS && stat.st_gid != USERS;
    let writable = (mode & 0o002 != 0 && !sticky) || (mode & 0o020 != 0 && !sticky && !system);
    if foreign || writable { Err(UntrustedPath::Open { path: path.to_owned(), owner, mode }) } else { Ok(()) }
}

fn system(path: &Path, errno: Errno) -> UntrustedPath {
    UntrustedPath::System { path: path.to_owned(), error: errno.into() }
}

impl UntrustedPath {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            UntrustedPath::Open { path, .. } => format!(
                "chmod go-w {0}, or chown it to yourself; or use a path in directories that only root and you can \
                    write to",
                path.display()
            ),
            UntrustedPath::Link(path) => format!("use the file itself instead of {}", path.display()),
            UntrustedPath::Kind(_) => "use a regular file".to_owned(),
            UntrustedPath::System { .. } => "use another path, in a directory that you can write to".to_owned(),
        }
    }

    /// The mistrust inside an error.
    pub fn of(error: &io::Error) -> Option<&UntrustedPath> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<UntrustedPath> for io::Error {
    fn from(mistrust: UntrustedPath) -> io::Error {
        match mistrust {
            UntrustedPath::System { error, .. } => error,
            mistrust => io::Error::new(io::ErrorKind::PermissionDenied, mistrust),
        }
    }
}

impl fmt::Display for UntrustedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UntrustedPath::Open { path, owner, mode } => write!(
                f,
                "other users could replace it: {} belongs to user {owner} and has mode {mode:o}",
                path.display()
            ),
            UntrustedPath::Link(path) => write!(f, "{} is a symbolic link", path.display()),
            UntrustedPath::Kind(path) => write!(f, "{} is not a regular file", path.display()),
            UntrustedPath::System { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for UntrustedPath {}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

    use super::*;
    use crate::privileges::missing;

    /// A directory below the sticky one for temporary files, removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hyoshi-trusted-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Place(path.canonicalize().unwrap())
        }

        fn mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_directory_is_made_and_its_files_are_appended_to_changed_and_replaced() {
        let place = Place::new("made");
        let folder = Folder::make(&place.0.join("a/b"), 0o700).unwrap();
        assert_eq!(folder.path(), place.0.join("a/b"));
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o777, 0o700);
        for text in ["one\n", "two\n"] {
            io::Write::write_all(&mut folder.file("log".as_ref(), OpenMode::Appending).unwrap(), text.as_bytes())
                .unwrap();
        }
        assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "one\ntwo\n");
        folder.replace("log".as_ref(), "log.new".as_ref(), b"three").unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut folder.file("log".as_ref(), OpenMode::Changing).unwrap(), &mut text).unwrap();
        assert_eq!(text, "three");
        assert_eq!(fs::metadata(folder.path().join("log")).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(folder.file("log".as_ref(), OpenMode::Making), Err(UntrustedPath::System { .. })));
        let (again, name) = Folder::of_file(&place.0.join("a/../a/b/log")).unwrap();
        assert_eq!((again.path(), name.to_str()), (folder.path(), Some("log")));
    }

    #[test]
    fn a_directory_that_others_write_to_holds_nothing_of_ours_and_is_passed_only_if_it_is_sticky() {
        let place = Place::new("open");
        fs::create_dir_all(place.0.join("open/inside")).unwrap();
        for (mode, last, passed) in
            [(0o755, true, true), (0o777, false, false), (0o757, false, false), (0o1777, false, true)]
        {
            place.mode("open", mode);
            assert_eq!(Folder::open(&place.0.join("open")).is_ok(), last, "{mode:o}");
            assert_eq!(Folder::open(&place.0.join("open/inside")).is_ok(), passed, "{mode:o}");
        }
        place.mode("open", 0o777);
        let refused = Folder::make(&place.0.join("open/new"), 0o700).unwrap_err();
        assert!(matches!(&refused, UntrustedPath::Open { mode: 0o777, .. }), "{refused}");
        assert!(refused.remedy().contains("chmod go-w") && !place.0.join("open/new").exists());
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        let place = Place::new("owner");
        fs::create_dir_all(place.0.join("theirs/deeper")).unwrap();
        fs::write(place.0.join("file"), "").unwrap();
        let own = fs::metadata(&place.0).unwrap().uid();
        // For other users, this test's files belong to another user.
        let other = own + 1;
        let refused = |path: &str| Folder::of_user(&place.0.join(path), None, other).unwrap_err();
        if own != 0 {
            assert!(matches!(refused("theirs"), UntrustedPath::Open { .. }));
            return missing("root, for the rest");
        }
        chown(place.0.join("theirs"), Some(65534), None).unwrap();
        assert!(matches!(refused("theirs/deeper"), UntrustedPath::Open { owner: 65534, .. }));
        assert!(matches!(Folder::open(&place.0.join("theirs")), Err(UntrustedPath::Open { owner: 65534, .. })));
        chown(place.0.join("file"), Some(65534), None).unwrap();
        let folder = Folder::open(&place.0).unwrap();
        assert!(matches!(
            folder.file("file".as_ref(), OpenMode::Changing),
            Err(UntrustedPath::Open { owner: 65534, .. })
        ));
        assert!(matches!(file(&place.0.join("file")), Err(UntrustedPath::Open { owner: 65534, .. })));
        // A directory that a system group may write to, and one that an ordinary group may write to.
        fs::create_dir_all(place.0.join("log/hyoshi")).unwrap();
        for (group, passed) in [(SYSTEM_GROUPS - 1, true), (SYSTEM_GROUPS, false)] {
            chown(place.0.join("log"), None, Some(group)).unwrap();
            place.mode("log", 0o775);
            assert_eq!(Folder::open(&place.0.join("log/hyoshi")).is_ok(), passed, "{group}");
            assert!(Folder::open(&place.0.join("log")).is_err(), "{group}");
        }
    }

    #[test]
    fn links_of_others_lead_nowhere_and_a_file_is_never_one() {
        let place = Place::new("link");
        fs::create_dir(place.0.join("real")).unwrap();
        fs::write(place.0.join("real/file"), "kept").unwrap();
        symlink("real", place.0.join("own")).unwrap();
        symlink(place.0.join("real/file"), place.0.join("name")).unwrap();
        assert_eq!(Folder::open(&place.0.join("own")).unwrap().path(), place.0.join("real"));
        assert_eq!(file(&place.0.join("name")).unwrap(), place.0.join("real/file"), "to read");
        let folder = Folder::open(&place.0).unwrap();
        for purpose in [OpenMode::Appending, OpenMode::Changing] {
            assert!(matches!(folder.file("name".as_ref(), purpose), Err(UntrustedPath::Link(_))));
        }
        folder.replace("other".as_ref(), "name".as_ref(), b"new").unwrap();
        assert_eq!(fs::read_to_string(place.0.join("real/file")).unwrap(), "kept");
        symlink("round", place.0.join("round")).unwrap();
        assert!(matches!(Folder::open(&place.0.join("round")), Err(UntrustedPath::System { .. })));
        if lchown(place.0.join("own"), Some(65534), None).is_err() {
            return missing("root, for the rest");
        }
        assert!(matches!(Folder::open(&place.0.join("own")), Err(UntrustedPath::Open { owner: 65534, .. })));
    }

    #[test]
    fn pipes_and_directories_are_refused_and_a_device_accepts_lines() {
        let place = Place::new("kind");
        let made = std::process::Command::new("mkfifo").arg(place.0.join("pipe")).status();
        assert!(made.unwrap().success());
        fs::create_dir(place.0.join("folder")).unwrap();
        let folder = Folder::open(&place.0).unwrap();
        for purpose in [OpenMode::Appending, OpenMode::Changing] {
            assert!(matches!(folder.file("pipe".as_ref(), purpose), Err(UntrustedPath::Kind(_))));
            assert!(folder.file("folder".as_ref(), purpose).is_err());
        }
        assert!(folder.replace("x".as_ref(), "folder".as_ref(), b"").is_err());
        let (devices, name) = Folder::of_file(Path::new("/dev/null")).unwrap();
        devices.file(&name, OpenMode::Appending).unwrap();
        assert!(matches!(devices.file(&name, OpenMode::Changing), Err(UntrustedPath::Kind(_))));
    }
}
