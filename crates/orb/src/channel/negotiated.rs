//! The agreement of both ends of a socket.

use std::sync::atomic::{AtomicU8, Ordering};

use hyoshi_wire::{CharSet, Version};

/// See the module.
///
/// ```text
///   Open ──► Agreed (Latin-1 or UTF-8)       Open ──► Refused ──► Agreed
/// ```
#[derive(Debug, Default)]
pub(crate) struct Negotiated {
    /// 0 while no code sets were announced: narrow characters are Latin-1.
    chars: AtomicU8,
    /// One more than the minor number of GIOP's version that the other side spoke last; 0 before it spoke.
    spoken: AtomicU8,
}

/// The other side means code sets that are not spoken here.
const REFUSED: u8 = 1;
const LATIN1: u8 = 2;
const UTF8: u8 = 3;

impl Negotiated {
    /// The code set of narrow characters.
    #[inline]
    pub(crate) fn chars(&self) -> CharSet {
        if self.chars.load(Ordering::Relaxed) == UTF8 { CharSet::Utf8 } else { CharSet::Latin1 }
    }

    /// Whether that is agreed upon.
    #[inline]
    pub(crate) fn is_agreed(&self) -> bool {
        self.chars.load(Ordering::Relaxed) >= LATIN1
    }

    /// Whether the other side was refused, and has not agreed upon anything since.
    pub(crate) fn is_refused(&self) -> bool {
        self.chars.load(Ordering::Relaxed) == REFUSED
    }

    /// From now on.
    pub(crate) fn agree(&self, chars: CharSet) {
        self.chars.store(if chars == CharSet::Utf8 { UTF8 } else { LATIN1 }, Ordering::Relaxed);
    }

    pub(crate) fn refuse(&self) {
        self.chars.store(REFUSED, Ordering::Relaxed);
    }

    /// The other side speaks this version.
    #[inline]
    pub(crate) fn hear(&self, version: Version) {
        let [_, minor] = version.octets();
        if self.spoken.load(Ordering::Relaxed) != minor + 1 {
            self.spoken.store(minor + 1, Ordering::Relaxed);
        }
    }

    /// True before the other side spoke.
    pub(crate) fn is_silent(&self) -> bool {
        self.spoken.load(Ordering::Relaxed) == 0
    }

    /// The version of messages that are not replies: the client's latest. Before it spoke that is 1.0, which
    /// every client understands: a server's must not be above the client's (CORBA 3.3 part 2, 9.4.1).
    pub(crate) fn version(&self) -> Version {
        let minor = self.spoken.load(Ordering::Relaxed).saturating_sub(1);
        Version::from_octets(1, minor).unwrap_or(Version::V1_0)
    }
}
