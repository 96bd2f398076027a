//! Code sets of characters on a connection (CORBA 3.3 part 2, 7.10; in older editions 13.10).

use alloc::vec::Vec;
use core::fmt;

use crate::cdr::{CharSet, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};
use crate::exception::{SystemException, SystemKind};

/// A code set by its number in OSF's registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeSet(pub u32);

impl CodeSet {
    /// None: used by a server without wide characters in its interfaces.
    pub const NONE: CodeSet = CodeSet(0);
    /// ISO 8859-1, Latin-1.
    pub const LATIN1: CodeSet = CodeSet(0x0001_0001);
    /// ISO 646, ASCII.
    pub const ASCII: CodeSet = CodeSet(0x0001_0020);
    /// UTF-8: the fallback for narrow characters.
    pub const UTF8: CodeSet = CodeSet(0x0501_0001);
    /// UTF-16: the fallback for wide characters.
    pub const UTF16: CodeSet = CodeSet(0x0001_0109);
    /// UCS-2, level 1: UTF-16 without surrogates.
    pub const UCS2: CodeSet = CodeSet(0x0001_0100);

    /// Its name, if known here.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "none",
            0x0001_0001 => "ISO 8859-1",
            0x0001_0002 => "ISO 8859-2",
            0x0001_0003 => "ISO 8859-3",
            0x0001_0004 => "ISO 8859-4",
            0x0001_0005 => "ISO 8859-5",
            0x0001_0006 => "ISO 8859-6",
            0x0001_0007 => "ISO 8859-7",
            0x0001_0008 => "ISO 8859-8",
            0x0001_0009 => "ISO 8859-9",
            0x0001_000a => "ISO 8859-10",
            0x0001_000f => "ISO 8859-15",
            0x0001_0020 => "ASCII",
            0x0001_0100 => "UCS-2",
            0x0001_0104 => "UCS-4",
            0x0001_0109 => "UTF-16",
            0x0501_0001 => "UTF-8",
            _ => return None,
        })
    }

    /// Whether all its characters are in Unicode, as far as its family shows (ISO 646, 8859, 10646).
    const fn universal(self) -> bool {
        self.0 == CodeSet::UTF8.0 || self.0 >> 16 == 1
    }
}

impl fmt::Display for CodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#010x}", self.0),
        }
    }
}

impl Encode for CodeSet {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.0.encode(to)
    }
}

impl Decode<'_> for CodeSet {
    const LEAST: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        u32::decode(from).map(CodeSet)
    }
}

/// The code sets that a server accepts for one width of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Its native code set.
    pub native: CodeSet,
    /// The code sets from and to which it converts.
    pub conversions: Vec<CodeSet>,
}

impl Offer {
    fn has(&self, set: CodeSet) -> bool {
        self.native == set || self.conversions.contains(&set)
    }
}

impl Encode for Offer {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.native.encode(to)?;
        self.conversions.encode(to)
    }
}

impl Decode<'_> for Offer {
    const LEAST: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Offer { native: Decode::decode(from)?, conversions: Decode::decode(from)? })
    }
}

/// The server's code sets in a reference (component 1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeSets {
    /// For `char` and `string`.
    pub narrow: Offer,
    /// For `wchar` and `wstring`.
    pub wide: Offer,
}

impl CodeSets {
    /// Those in this ORB's references: UTF-8 and UTF-16, and Latin-1 for peers that support nothing else.
    pub fn ours() -> CodeSets {
        CodeSets {
            narrow: Offer { native: CodeSet::UTF8, conversions: [CodeSet::LATIN1].into() },
            wide: Offer { native: CodeSet::UTF16, conversions: Vec::new() },
        }
    }
}

impl Encode for CodeSets {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.narrow.encode(to)?;
        self.wide.encode(to)
    }
}

impl Decode<'_> for CodeSets {
    const LEAST: usize = 16;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(CodeSets { narrow: Decode::decode(from)?, wide: Decode::decode(from)? })
    }
}

/// The code sets of a connection: service context 1, in the client's first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmission {
    /// Of `char` and `string`.
    pub narrow: CodeSet,
    /// Of `wchar` and `wstring`; [`CodeSet::NONE`] if the server has none.
    pub wide: CodeSet,
}

impl Transmission {
    /// The client's choice from the server's code sets in its reference.
    ///
    /// UTF-8 if the server accepts it at all, because it loses nothing: that is omniORB, which works in Latin-1, and
    /// JacORB. (The standard's own order prefers the server's native set if the client can convert to it; the server
    /// must accept either.) Else Latin-1; else UTF-8 as the fallback, which every server must accept if UTF-8 has
    /// its characters.
    ///
    /// # Errors
    ///
    /// `CODESET_INCOMPATIBLE` (minor 1 of OMG): a server of an unrelated code set, such as EBCDIC.
    pub fn choose(server: &CodeSets) -> Result<Transmission, SystemException> {
        let narrow = if server.narrow.has(CodeSet::UTF8) {
            CodeSet::UTF8
        } else if server.narrow.has(CodeSet::LATIN1) {
            CodeSet::LATIN1
        } else if server.narrow.native.universal() {
            CodeSet::UTF8
        } else {
            return Err(INCOMPATIBLE);
        };
        let wide = match server.wide.native {
            CodeSet::NONE if server.wide.conversions.is_empty() => CodeSet::NONE,
            _ if server.wide.has(CodeSet::UTF16) => CodeSet::UTF16,
            native if native.universal() => CodeSet::UTF16,
            _ => return Err(INCOMPATIBLE),
        };
        Ok(Transmission { narrow, wide })
    }

    /// The character set in which narrow characters are to be read and written.
    ///
    /// # Errors
    ///
    /// `CODESET_INCOMPATIBLE`: the client chose a set that was not offered.
    pub fn chars(&self) -> Result<CharSet, SystemException> {
        if ![CodeSet::NONE, CodeSet::UTF16, CodeSet::UCS2].contains(&self.wide) {
            return Err(INCOMPATIBLE);
        }
        match self.narrow {
            CodeSet::UTF8 => Ok(CharSet::Utf8),
            // None: a client that sends only wide characters.
            CodeSet::LATIN1 | CodeSet::ASCII | CodeSet::NONE => Ok(CharSet::Latin1),
            _ => Err(INCOMPATIBLE),
        }
    }
}

/// OMG's vendor id, and its minor code 1.
const INCOMPATIBLE: SystemException = SystemKind::CodesetIncompatible.not_done(0x4f4d_0001);

impl Encode for Transmission {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.narrow.encode(to)?;
        self.wide.encode(to)
    }
}

impl Decode<'_> for Transmission {
    const LEAST: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Transmission { narrow: Decode::decode(from)?, wide: Decode::decode(from)? })
    }
}
