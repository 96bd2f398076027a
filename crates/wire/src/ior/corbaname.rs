//! `corbaname:` (7.6.10.6): a naming context, and a name in it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::corbaloc::{Rest, addresses_and_key, escape, print, unescape};
use super::{Corbaloc, NameComponent, ReferenceError, ReferenceErrorKind, parse_name, print_name};

/// The key of the default naming context.
const NAME_SERVICE: &[u8] = b"NameService";

/// A naming context and a name in it.
///
/// ```text
///   corbaname::host#plant/tracker.service     the context with key NameService on host:2809
///   corbaname:rir:#plant/tracker              the ORB's own NameService
///   corbaname:iiop:1.2@host:2809/Other#name   another context
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Corbaname {
    /// The naming context.
    pub context: Corbaloc,
    /// The name in it; empty: the context itself.
    pub name: Vec<NameComponent>,
}

impl FromStr for Corbaname {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Corbaname, ReferenceError> {
        let Some(rest) = (Rest { text, at: 0 }).after("corbaname:") else {
            return Rest { text, at: 0 }.fail(ReferenceErrorKind::Scheme);
        };
        let (place, name) = match rest.text.split_once('#') {
            Some((place, _)) => (Rest { text: place, ..rest }, Some(rest.skip(place.len() + 1))),
            None => (rest, None),
        };
        let mut context = addresses_and_key(place)?;
        if context.key.is_empty() {
            context.key = NAME_SERVICE.into();
        }
        let name = match name {
            None => Vec::new(),
            Some(name) => {
                let Ok(unescaped) = String::from_utf8(unescape(name)?) else {
                    return name.fail(ReferenceErrorKind::Utf8);
                };
                // Offsets within the name are those of the escaped text only if it has no escapes.
                parse_name(&unescaped).map_err(|error| ReferenceError { at: name.at + error.at, ..error })?
            }
        };
        Ok(Corbaname { context, name })
    }
}

impl fmt::Display for Corbaname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("corbaname:")?;
        if self.context.key == NAME_SERVICE {
            print(&Corbaloc { addresses: self.context.addresses.clone(), key: Vec::new() }, f)?;
        } else {
            print(&self.context, f)?;
        }
        if !self.name.is_empty() {
            f.write_str("#")?;
            escape(print_name(&self.name).as_bytes(), f)?;
        }
        Ok(())
    }
}
