//! Laws of references.

mod octets;
mod text;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::cdr::Version;
use crate::giop::{CodeSet, CodeSets, Offer, Transmission};
use crate::tagged::{Tagged, TaggedList};

/// The root context of omniNames 4.2.5 that listens on TCP and on a Unix socket.
const OMNI: &str = "IOR:010000002b00000049444c3a6f6d672e6f72672f436f734e616d696e672f4e616d696e67436f6e746578744578743a\
                    312e300000010000000000000098000000010102000a0000003132372e302e302e310009320b0000004e616d6553657276\
                    696365000400000000000000080000000100000000545441010000001c0000000100000001000100010000000100010509\
                    010100010000000901010002545441230000000100000003000000766d0000130000002f72756e2f6e616d696e672f736f\
                    636b657400000354544108000000d71a026b010030a5";
