//! Small messages that claim a lot.

use alloc::{vec, vec::Vec};

use crate::cdr::DecodeErrorKind;
use crate::{
    Any, ByteOrder, CharSet, Decode, Decoder, Encode, EncodeError, Encoder, FixedDecimal, Limits, TypeCode, TypeKind,
    Value, Version,
};

fn message(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Big);
    write(&mut to);
    to.into_bytes()
}

fn words(to: &mut Encoder, words: &[u32]) {
    words.iter().for_each(|word| word.encode(to).unwrap());
}

fn capsule(to: &mut Encoder, kind: TypeKind, body: impl FnOnce(&mut Encoder)) {
    (kind as u32).encode(to).unwrap();
    to.encapsulate(|to| {
        body(to);
        Ok(())
    })
    .unwrap();
}

/// A struct without id and names; `members` writes their type codes, each after an empty name.
fn structure(to: &mut Encoder, count: u32, members: impl FnOnce(&mut Encoder)) {
    capsule(to, TypeKind::Struct, |to| {
        ["", ""].iter().for_each(|name| name.encode(to).unwrap());
        count.encode(to).unwrap();
        members(to);
    });
}

fn read<'a, T: Decode<'a>>(octets: &'a [u8]) -> Result<T, DecodeErrorKind> {
    T::decode(&mut Decoder::new(octets, ByteOrder::Big)).map_err(|error| error.kind)
}

fn back_to(to: &mut Encoder, target: usize) {
    words(to, &[0xffff_ffff]);
    let back = target as i64 - to.len() as i64;
    (back as i32).encode(to).unwrap();
}

#[test]
fn value_types_are_refused_by_name() {
    for kind in [TypeKind::Value, TypeKind::ValueBox, TypeKind::Event] {
        let octets = message(|to| capsule(to, kind, |to| "IDL:V:1.0".encode(to).unwrap()));
        assert_eq!(read::<TypeCode>(&octets), Err(DecodeErrorKind::Unsupported("value types")));
    }
    let octets = message(|to| {
        capsule(to, TypeKind::AbstractInterface, |to| ["IDL:A:1.0", "A"].iter().for_each(|s| s.encode(to).unwrap()));
        words(to, &[0; 4]);
    });
    assert_eq!(read::<TypeCode>(&octets).unwrap().kind(), TypeKind::AbstractInterface);
    assert_eq!(read::<Any>(&octets), Err(DecodeErrorKind::Unsupported("values of abstract interfaces")));
}

#[test]
fn nesting_has_an_end() {
    fn sequences(to: &mut Encoder, depth: usize) {
        if depth == 0 {
            return words(to, &[TypeKind::Octet as u32]);
        }
        capsule(to, TypeKind::Sequence, |to| {
            sequences(to, depth - 1);
            words(to, &[0]);
        });
    }
    assert!(read::<TypeCode>(&message(|to| sequences(to, 32))).is_ok());
    assert_eq!(read::<TypeCode>(&message(|to| sequences(to, 33))), Err(DecodeErrorKind::Depth(32)));
    // Anys within anys.
    let octets = message(|to| words(to, &[TypeKind::Any as u32; 100_000]));
    assert_eq!(read::<Any>(&octets), Err(DecodeErrorKind::Depth(32)));
    // Values of a type that contains itself.
    let octets = message(|to| {
        capsule(to, TypeKind::Sequence, |to| {
            back_to(to, 0);
            words(to, &[0]);
        });
        words(to, &[1; 100_000]);
    });
    assert!(read::<TypeCode>(&octets).is_ok());
    assert_eq!(read::<Any>(&octets), Err(DecodeErrorKind::Depth(32)));
    // Depth by indirections: each struct contains the one before.
    let octets = message(|to| {
        structure(to, 40, |to| {
            let mut last = None;
            for _ in 0..40 {
                "".encode(to).unwrap();
                to.align(4);
                let at = to.len();
                structure(to, u32::from(last.is_some()), |to| {
                    if let Some(last) = last {
                        "".encode(to).unwrap();
                        back_to(to, last);
                    }
                });
                last = Some(at);
            }
        })
    });
    assert_eq!(read::<TypeCode>(&octets), Err(DecodeErrorKind::Depth(32)));
}

#[test]
fn indirections_lead_back_within_the_type_code() {
    const ASTRAY: DecodeErrorKind = DecodeErrorKind::Value("an indirection to an octet where no type code began");
    let sequence_of = |write: &dyn Fn(&mut Encoder)| {
        let octets = message(|to| {
            words(to, &[TypeKind::Long as u32]);
            capsule(to, TypeKind::Sequence, |to| {
                write(to);
                words(to, &[0]);
            });
        });
        let mut from = Decoder::new(&octets, ByteOrder::Big);
        from.raw(4).unwrap();
        TypeCode::decode(&mut from).map_err(|error| error.kind)
    };
    assert!(sequence_of(&|to| back_to(to, 4)).is_ok());
    // Forward, to itself, to its offset, into the middle, before the type code, before the message.
    for target in [64usize, 16, 20, 8, 0] {
        assert_eq!(sequence_of(&|to| back_to(to, target)), Err(ASTRAY), "{target}");
    }
    assert_eq!(sequence_of(&|to| words(to, &[0xffff_ffff, 0x8000_0000])), Err(ASTRAY));
    // The type code of the enclosing any is another one.
    let octets = message(|to| {
        capsule(to, TypeKind::Sequence, |to| words(to, &[TypeKind::Any as u32, 0]));
        words(to, &[1]);
        back_to(to, 0);
    });
    assert_eq!(read::<Any>(&octets), Err(ASTRAY));
}

#[test]
fn nesting_that_could_not_be_written_is_not_read() {
    fn sequences(to: &mut Encoder, depth: usize) {
        if depth == 0 {
            return words(to, &[TypeKind::Octet as u32]);
        }
        capsule(to, TypeKind::Sequence, |to| {
            sequences(to, depth - 1);
            words(to, &[0]);
        });
    }
    let taken = |depth| {
        let octets = message(|to| sequences(to, depth));
        let limits = Limits { depth: 1000, ..Limits::default() };
        TypeCode::decode(&mut Decoder::new(&octets, ByteOrder::Big).limited(limits)).map_err(|error| error.kind)
    };
    let code = taken(128).unwrap();
    assert!(code.encode(&mut Encoder::new(ByteOrder::Big)).is_ok());
    assert_eq!(taken(129), Err(DecodeErrorKind::Depth(128)));
}

/// A union, written word by word, with this discriminator.
fn union(to: &mut Encoder, discriminator: impl FnOnce(&mut Encoder), rest: impl FnOnce(&mut Encoder)) {
    capsule(to, TypeKind::Union, |to| {
        ["", ""].iter().for_each(|name| name.encode(to).unwrap());
        discriminator(to);
        rest(to);
    });
}

#[test]
fn a_union_has_no_wide_labels_where_the_version_has_no_wide_characters() {
    // Only a default: its label is ignored. Without a case there is no label.
    let default = message(|to| {
        union(
            to,
            |to| words(to, &[TypeKind::WChar as u32]),
            |to| {
                words(to, &[0, 1]);
                0u16.encode(to).unwrap();
                "".encode(to).unwrap();
                words(to, &[TypeKind::Octet as u32]);
            },
        )
    });
    let empty = message(|to| union(to, |to| words(to, &[TypeKind::WChar as u32]), |to| words(to, &[0, 0])));
    let taken = |octets: &[u8], version| {
        let mut from = Decoder::new(octets, ByteOrder::Big);
        from.speak(version, CharSet::Latin1);
        TypeCode::decode(&mut from).map_err(|error| error.kind)
    };
    assert_eq!(taken(&default, Version::V1_1).unwrap().default_index(), Some(0));
    assert_eq!(taken(&default, Version::V1_0), Err(DecodeErrorKind::Unsupported("wide characters in GIOP 1.0")));
    let code = taken(&empty, Version::V1_0).unwrap();
    let mut to = Encoder::new(ByteOrder::Big);
    to.speak(Version::V1_0, CharSet::Latin1);
    assert_eq!(code.encode(&mut to), Ok(()));
}

#[test]
fn a_union_is_switched_by_what_has_values_and_can_be_compared() {
    const NONE: DecodeErrorKind = DecodeErrorKind::Value("a union's discriminator of an invalid type");
    let enumeration = |to: &mut Encoder, names: &[&str]| {
        capsule(to, TypeKind::Enum, |to| {
            ["", ""].iter().for_each(|name| name.encode(to).unwrap());
            words(to, &[names.len() as u32]);
            names.iter().for_each(|name| name.encode(to).unwrap());
        })
    };
    let switched = |by: &dyn Fn(&mut Encoder), default: bool| {
        let octets = message(|to| {
            union(to, by, |to| match default {
                true => {
                    words(to, &[0, 1, 0]);
                    "".encode(to).unwrap();
                    words(to, &[TypeKind::Octet as u32]);
                }
                false => words(to, &[0, 0]),
            })
        });
        read::<TypeCode>(&octets)
    };
    for default in [false, true] {
        assert!(switched(&|to| enumeration(to, &["A"]), default).is_ok());
        assert!(switched(&|to| words(to, &[TypeKind::Long as u32]), default).is_ok());
        assert_eq!(switched(&|to| enumeration(to, &[]), default), Err(NONE));
        assert_eq!(switched(&|to| structure(to, 0, |_| ()), default), Err(NONE));
        assert_eq!(switched(&|to| words(to, &[TypeKind::Float as u32]), default), Err(NONE));
    }
}

#[test]
fn a_union_that_could_not_be_read_is_not_written() {
    let refused = |by: TypeKind, cases: &[(Option<i128>, &str)]| {
        let code = TypeCode::build(|types| {
            types.union(
                "IDL:U:1.0",
                "U",
                |types| types.simple(by),
                |types| {
                    let of = types.simple(TypeKind::Octet);
                    cases.iter().map(|(label, name)| (*label, *name, of)).collect::<Vec<_>>()
                },
            )
        });
        code.encode(&mut Encoder::new(ByteOrder::Big))
    };
    assert_eq!(refused(TypeKind::Long, &[(Some(1), "a"), (None, "b")]), Ok(()));
    assert!(matches!(refused(TypeKind::Double, &[]), Err(EncodeError::Value(_))));
    assert!(matches!(refused(TypeKind::Long, &[(None, "a"), (None, "b")]), Err(EncodeError::Value(_))));
}

#[test]
fn a_fixed_type_of_no_digits_has_no_values() {
    for digits in [0, 32, u16::MAX] {
        let code = TypeCode::build(|types| types.fixed(digits, 0));
        let code = read::<TypeCode>(&message(|to| code.encode(to).unwrap())).unwrap();
        let number = Value::Fixed(FixedDecimal { unscaled: 0, scale: 0 }.into());
        assert!(matches!(Any::new(code, &number), Err(EncodeError::Value(_))));
    }
}

#[test]
fn a_type_that_holds_itself_has_no_values() {
    const ENDLESS: DecodeErrorKind =
        DecodeErrorKind::Value("a type that contains itself other than through a sequence");
    let octets = message(|to| {
        structure(to, 1, |to| {
            "".encode(to).unwrap();
            back_to(to, 0);
        })
    });
    assert_eq!(read::<TypeCode>(&octets), Err(ENDLESS));
    let octets = message(|to| {
        capsule(to, TypeKind::Alias, |to| {
            ["", ""].iter().for_each(|name| name.encode(to).unwrap());
            back_to(to, 0);
        })
    });
    assert_eq!(read::<TypeCode>(&octets), Err(ENDLESS));
    // Two aliases of each other, as the discriminator of a union: its labels are read before the type is complete.
    let octets = message(|to| {
        capsule(to, TypeKind::Union, |to| {
            ["", ""].iter().for_each(|name| name.encode(to).unwrap());
            to.align(4);
            let outer = to.len();
            capsule(to, TypeKind::Alias, |to| {
                ["", ""].iter().for_each(|name| name.encode(to).unwrap());
                capsule(to, TypeKind::Alias, |to| {
                    ["", ""].iter().for_each(|name| name.encode(to).unwrap());
                    back_to(to, outer);
                });
            });
            words(to, &[0xffff_ffff, 1, 0, 1]);
        })
    });
    assert_eq!(read::<TypeCode>(&octets), Err(ENDLESS));
    // O contains a sequence of A, A contains O: valid so far; and then O contains A itself.
    let octets = message(|to| {
        structure(to, 2, |to| {
            "".encode(to).unwrap();
            let mut a = 0;
            capsule(to, TypeKind::Sequence, |to| {
                to.align(4);
                a = to.len();
                structure(to, 1, |to| {
                    "".encode(to).unwrap();
                    back_to(to, 0);
                });
                words(to, &[0]);
            });
            "".encode(to).unwrap();
            back_to(to, a);
        })
    });
    assert_eq!(read::<TypeCode>(&octets), Err(ENDLESS));
}

#[test]
fn what_refers_to_itself_twice_stays_small() {
    // Each of thirty structs contains the one before twice: 2^30 in full.
    let octets = message(|to| {
        structure(to, 30, |to| {
            let mut last = None;
            for _ in 0..30 {
                "".encode(to).unwrap();
                to.align(4);
                let at = to.len();
                structure(to, 2, |to| {
                    for _ in 0..2 {
                        "".encode(to).unwrap();
                        match last {
                            Some(last) => back_to(to, last),
                            None => words(to, &[TypeKind::Octet as u32]),
                        }
                    }
                });
                last = Some(at);
            }
        })
    });
    let code: TypeCode = read(&octets).unwrap();
    let again = message(|to| code.encode(to).unwrap());
    assert!(again.len() < 20_000, "{}", again.len());
    assert_eq!(read::<TypeCode>(&again), Ok(code.clone()));
    // Its value would be 2^31 octets.
    let any = [again, vec![0; 4096]].concat();
    assert!(matches!(read::<Any>(&any), Err(DecodeErrorKind::Short { .. } | DecodeErrorKind::Value(_))));
}

#[test]
fn values_without_octets_are_counted() {
    const MANY: DecodeErrorKind = DecodeErrorKind::Value("more values without octets than a message may contain");
    let array = |to: &mut Encoder, of: &dyn Fn(&mut Encoder), length: u32| {
        capsule(to, TypeKind::Array, |to| {
            of(to);
            words(to, &[length]);
        });
    };
    let empty = |to: &mut Encoder| structure(to, 0, |_| ());
    let octets = message(|to| array(to, &empty, u32::MAX));
    assert_eq!(read::<Any>(&octets), Err(MANY));
    let octets = message(|to| array(to, &|to| array(to, &|to| array(to, &empty, 1000), 1000), 1000));
    assert_eq!(read::<Any>(&octets), Err(MANY));
    let octets = message(|to| array(to, &|to| words(to, &[TypeKind::Void as u32]), u32::MAX));
    assert_eq!(read::<Any>(&octets), Err(MANY));
    let octets = message(|to| {
        capsule(to, TypeKind::Sequence, |to| {
            empty(to);
            words(to, &[0]);
        });
        words(to, &[u32::MAX]);
    });
    assert_eq!(read::<Any>(&octets), Err(MANY));
    let nothings = [&u32::MAX.to_be_bytes()[..], &[0; 64]].concat();
    assert_eq!(read::<Vec<()>>(&nothings), Err(MANY));
    let any = Any::of(&vec![(); 3]).unwrap();
    assert_eq!(any.get(), Ok(vec![(); 3]));
}

#[test]
fn an_any_from_a_large_message_is_taken_from_a_small_one() {
    // As many nulls as an any may contain by itself, or one more; alone, among other octets, or in another any.
    let nulls = |count: u32| {
        message(|to| {
            capsule(to, TypeKind::Array, |to| words(to, &[TypeKind::Null as u32, count]));
        })
    };
    let in_any = |any: Vec<u8>, more: usize| {
        message(|to| {
            words(to, &[TypeKind::Any as u32]);
            to.raw(&any);
            to.raw(&vec![0; more]);
        })
    };
    for more in [0, 10_000] {
        // One more is the array itself.
        let octets = [nulls(4095), vec![0; more]].concat();
        let any: Any = read(&octets).unwrap();
        assert_eq!(read::<Any>(&message(|to| any.encode(to).unwrap())), Ok(any));
        assert!(read::<Any>(&[nulls(4096), vec![0; more]].concat()).is_err());
        assert!(read::<Any>(&in_any(nulls(4095), more)).unwrap().value().is_ok());
        assert!(read::<Any>(&in_any(nulls(4096), more)).is_err());
    }
}

#[test]
fn a_received_any_is_passed_on_under_any_limits() {
    // Deeper than the default allows, read with higher limits.
    let mut any = Any::of(&1u8).unwrap();
    for _ in 0..40 {
        any = Any::of(&any).unwrap();
    }
    let octets = message(|to| any.encode(to).unwrap());
    assert_eq!(read::<Any>(&octets), Err(DecodeErrorKind::Depth(32)));
    let limits = Limits { depth: 50, ..Limits::default() };
    let taken = Any::decode(&mut Decoder::new(&octets, ByteOrder::Big).limited(limits)).unwrap();
    assert_eq!(message(|to| taken.encode(to).unwrap()), octets);
    assert!(taken.value().is_ok());
}

#[test]
fn a_union_of_many_cases_is_searched_quickly() {
    // A hundred thousand cases and as many values: comparing each with each would last minutes.
    let code = TypeCode::build(|types| {
        let union = types.union(
            "IDL:U:1.0",
            "U",
            |types| types.simple(TypeKind::Long),
            |types| {
                let of = types.simple(TypeKind::Octet);
                (0..100_000i128).map(move |label| (Some(label), "", of)).collect::<Vec<_>>()
            },
        );
        types.sequence(union, 0)
    });
    let octets = message(|to| {
        code.encode(to).unwrap();
        words(to, &[100_000]);
        for label in 0..100_000 {
            words(to, &[label]);
            1u8.encode(to).unwrap();
        }
    });
    assert!(read::<Any>(&octets).is_ok());
}
