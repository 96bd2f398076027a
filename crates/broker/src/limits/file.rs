//! Reads the limits' file. Root trusts it, so only root and the broker's own user may be able to write to it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use hyoshi_model::{Diagnostic, quantity};
use hyoshi_os::trusted::UntrustedPath;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::{LimitScope, Rules, UserLimits};

/// Largest size of the file, in octets.
const MOST: u64 = 1 << 20;

/// Why a file of limits cannot be used.
#[derive(Debug)]
pub enum LimitsError {
    /// It cannot be read.
    System(PathBuf, io::Error),
    /// Another user controls its path, or it is not a file.
    UntrustedPath(UntrustedPath),
    /// It is larger than 1 MiB.
    TooLarge(PathBuf),
    /// Its content is wrong.
    Wrong(Box<Diagnostic>),
}

impl LimitsError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            LimitsError::System(..) => "make it readable for the broker, or use --limits FILE".to_owned(),
            LimitsError::UntrustedPath(mistrust) => mistrust.remedy(),
            LimitsError::TooLarge(_) => "use a text file of at most 1 MiB".to_owned(),
            LimitsError::Wrong(error) => error.help.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitsError::System(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            LimitsError::UntrustedPath(mistrust) => write!(f, "cannot read the limits: {mistrust}"),
            LimitsError::TooLarge(path) => write!(f, "{} is larger than 1 MiB", path.display()),
            LimitsError::Wrong(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LimitsError {}

/// The limits of a file; `None` if it does not exist.
///
/// # Errors
///
/// If other users could change the file, or its content is invalid.
pub fn read_file(path: &Path) -> Result<Option<Rules>, LimitsError> {
    match trusted(path) {
        Err(LimitsError::System(_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(text) => read(&text, &path.display().to_string()).map(Some),
    }
}

/// The limits in a text; messages call it `file`.
///
/// # Errors
///
/// If the text is invalid.
pub fn read(text: &str, file: &str) -> Result<Rules, LimitsError> {
    let written: LimitsFile = toml::from_str(text).map_err(|error| {
        let message = error.message().trim_end().to_owned();
        let help = match message.contains("TOML parse") || message.contains("expected `=`") {
            true => "lines are `key = value`; tables begin with [default], [group.NAME], [user.NAME] or [operators]",
            false => HELP,
        };
        let place = error.span().unwrap_or(0..0);
        LimitsError::Wrong(Box::new(Diagnostic::at(file, text, place, message, Some(help.to_owned()))))
    })?;
    let base = written.default.over(UserLimits::of(LimitScope::Default));
    let named = |scope: LimitScope, entry: LimitsEntry| {
        // Keys missing in an entry come from the default, except for the group with larger defaults.
        let before = match UserLimits::of(scope.clone()) {
            limits if limits == (UserLimits { scope: scope.clone(), ..UserLimits::of(LimitScope::Default) }) => {
                UserLimits { scope, ..base.clone() }
            }
            limits => limits,
        };
        entry.over(before)
    };
    let groups = written.group.into_iter().map(|(name, entry)| named(LimitScope::Group(name), entry));
    let users = written.user.into_iter().map(|(name, entry)| named(LimitScope::User(name), entry));
    let all: Vec<UserLimits> = std::iter::once(base.clone()).chain(groups).chain(users).collect();
    let OperatorLists { libraries, objects } = written.operators;
    Ok(Rules { libraries, objects, ..Rules::new(all, file) })
}

const HELP: &str = "an entry has share = \"10%\", importance, tasks, threads, connections, settings = \"16KiB\" and requests; \
                    [operators] has libraries and objects, lists of texts";

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitsFile {
    default: LimitsEntry,
    group: BTreeMap<String, LimitsEntry>,
    user: BTreeMap<String, LimitsEntry>,
    operators: OperatorLists,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OperatorLists {
    libraries: Vec<String>,
    objects: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitsEntry {
    #[serde(deserialize_with = "share")]
    share: Option<u32>,
    importance: Option<u32>,
    tasks: Option<u32>,
    threads: Option<u32>,
    connections: Option<NonZeroU32>,
    #[serde(deserialize_with = "octets")]
    settings: Option<u64>,
    requests: Option<NonZeroU32>,
}

impl LimitsEntry {
    fn over(&self, before: UserLimits) -> UserLimits {
        UserLimits {
            scope: before.scope,
            share: self.share.unwrap_or(before.share),
            importance: self.importance.unwrap_or(before.importance),
            tasks: self.tasks.unwrap_or(before.tasks),
            threads: self.threads.unwrap_or(before.threads),
            connections: self.connections.map_or(before.connections, NonZeroU32::get),
            settings: self.settings.unwrap_or(before.settings),
            requests: self.requests.map_or(before.requests, NonZeroU32::get),
        }
    }
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(from)?;
    let share = quantity::share_ppm(&text);
    share.map(Some).map_err(|error| D::Error::custom(format_args!("share {error}")))
}

fn octets<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let octets = quantity::bytes(&text);
    octets.map(Some).map_err(|error| D::Error::custom(format_args!("settings {error}")))
}

/// The text of a file that no other user controls ([`hyoshi_os::trusted`]).
fn trusted(path: &Path) -> Result<String, LimitsError> {
    let path = hyoshi_os::trusted::file(path).map_err(|mistrust| match mistrust {
        UntrustedPath::System { path, error } => LimitsError::System(path, error),
        mistrust => LimitsError::UntrustedPath(mistrust),
    })?;
    let failed = |error| LimitsError::System(path.clone(), error);
    let mut text = String::new();
    File::open(&path).map_err(failed)?.take(MOST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST { Err(LimitsError::TooLarge(path)) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn wrong(text: &str) -> String {
        match read(text, "limits.toml").unwrap_err() {
            LimitsError::Wrong(error) => format!("{error}"),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_entry_takes_from_the_default_what_it_leaves_out_and_the_group_keeps_what_it_has() {
        let text = "[default]\ntasks = 3\nshare = \"5%\"\n[user.1000]\nshare = \"20%\"\n[group.hyoshi]\nthreads = 9\n";
        let rules = read(text, "limits.toml").unwrap();
        let of = |scope: &str| rules.entries().find(|limits| limits.scope.to_string() == scope).unwrap().clone();
        assert_eq!((of("default").tasks, of("default").share), (3, 50_000));
        assert_eq!((of("user.1000").tasks, of("user.1000").share, of("user.1000").importance), (3, 200_000, 1));
        assert_eq!(
            (of("group.hyoshi").threads, of("group.hyoshi").share, of("group.hyoshi").importance),
            (9, 500_000, 10)
        );
        assert_eq!(read("", "x").unwrap(), Rules { file: "x".into(), ..Rules::default() });
    }

    #[test]
    fn what_is_wrong_is_shown_with_its_place_and_what_to_write() {
        for (text, expected, line) in [
            ("[default]\nshare = \"110%\"\n", "share is too large", "2 | share = \"110%\""),
            ("[default]\nshare = 10\n", "invalid type: integer `10`, expected a string", "2 | share = 10"),
            ("[default]\ntask = 10\n", "unknown field `task`, expected one of `share`", "2 | task = 10"),
            ("[defaults]\n", "unknown field `defaults`, expected one of `default`", "1 | [defaults]"),
            ("[user.ann]\nrequests = 0\n", "expected a nonzero u32", "2 | requests = 0"),
            ("[user.ann]\ntasks = -1\n", "expected u32", "2 | tasks = -1"),
            ("[default\n", "unclosed table", "1 | [default"),
        ] {
            let message = wrong(text);
            assert!(
                message.contains(expected) && message.contains(line) && message.contains("limits.toml:"),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn the_reference_has_every_key_with_its_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/broker.toml");
        let text = fs::read_to_string(path).unwrap();
        let rules = read(&text, super::super::FILE).unwrap();
        assert_eq!(rules, Rules::default());
        for key in ["share", "importance", "tasks", "threads", "connections", "settings", "requests"] {
            assert!(text.matches(&format!("\n{key} = ")).count() >= 2, "{key} in [default] and [group.hyoshi]");
        }
        assert!(text.contains("\nlibraries = ") && text.contains("\nobjects = "));
        // The commented examples are valid, too.
        let shown: String =
            text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
        let shown = read(&shown, "broker.toml").unwrap();
        assert!(shown.entries().any(|limits| matches!(limits.scope, LimitScope::User(_))));
    }

    #[test]
    fn a_file_that_others_could_change_or_replace_is_refused() {
        let place = std::env::temp_dir().join(format!("hyoshi-limits-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let directory = place.join("etc");
        fs::create_dir_all(&directory).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&place, 0o755);
        mode(&directory, 0o755);
        let file = directory.join("broker.toml");
        assert_eq!(read_file(&file).unwrap(), None, "no file means the defaults");
        fs::write(&file, "[default]\ntasks = 3\n").unwrap();
        mode(&file, 0o644);
        let rules = read_file(&file).unwrap().unwrap();
        assert_eq!(rules.entries().next().unwrap().tasks, 3);

        let refuses_with = |what: &str| {
            let error = read_file(&file).unwrap_err();
            assert!(!error.remedy().is_empty());
            assert!(error.to_string().contains(what), "{error}");
        };
        mode(&file, 0o666);
        refuses_with("broker.toml belongs to user");
        mode(&file, 0o644);
        for above in [&directory, &place] {
            mode(above, 0o777);
            refuses_with("has mode 777");
            mode(above, 0o755);
        }
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        refuses_with("is not a regular file");
        fs::remove_dir_all(&place).unwrap();
    }
}
