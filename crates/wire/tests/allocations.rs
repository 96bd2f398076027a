//! Values of fixed size are written into a warm encoder and read again without any allocation; so are the messages
//! around them.

use hyoshi_wire::giop::{
    Message, Reassembler, ReplyHeader, ReplyStatus, RequestHeader, Response, ServiceContext, Target,
};
use hyoshi_wire::{ByteOrder, Decode, Decoder, Encode, Encoder, Fixed, Limits, LongDouble, TypeCode, Typed, WChar};

fn allocations(path: impl FnOnce()) -> u64 {
    allocation_counter::measure(path).count_total
}

#[test]
fn fixed_sizes_allocate_nothing() {
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let mut to = Encoder::new(order);
        to.reserve(4096);
        let price: Fixed<9, 2> = "12.34".parse().unwrap();
        let counted = allocations(|| {
            for value in 0..8u8 {
                value.encode(&mut to).unwrap();
                true.encode(&mut to).unwrap();
                [[1.5f64, 2.5], [3.5, 4.5]].encode(&mut to).unwrap();
                [true, false].encode(&mut to).unwrap();
                [1u64; 16].encode(&mut to).unwrap();
                ['a'; 3].encode(&mut to).unwrap();
                WChar('€').encode(&mut to).unwrap();
                LongDouble::from(1.5).encode(&mut to).unwrap();
                price.encode(&mut to).unwrap();
                "a string that is borrowed".encode(&mut to).unwrap();
                [7u8; 16].as_slice().encode(&mut to).unwrap();
            }
        });
        assert_eq!(counted, 0, "encoding, {order:?}");
        let octets = to.into_bytes();
        let counted = allocations(|| {
            let from = &mut Decoder::new(&octets, order);
            for value in 0..8u8 {
                assert_eq!(u8::decode(from), Ok(value));
                assert_eq!(bool::decode(from), Ok(true));
                assert_eq!(<[[f64; 2]; 2]>::decode(from), Ok([[1.5, 2.5], [3.5, 4.5]]));
                assert_eq!(<[bool; 2]>::decode(from), Ok([true, false]));
                assert_eq!(<[u64; 16]>::decode(from), Ok([1; 16]));
                assert_eq!(<[char; 3]>::decode(from), Ok(['a'; 3]));
                assert_eq!(WChar::decode(from), Ok(WChar('€')));
                assert_eq!(LongDouble::decode(from), Ok(LongDouble::from(1.5)));
                assert_eq!(Fixed::decode(from), Ok(price));
                assert_eq!(std::borrow::Cow::<str>::decode(from).unwrap(), "a string that is borrowed");
                assert_eq!(<&[u8]>::decode(from), Ok([7; 16].as_slice()));
            }
        });
        assert_eq!(counted, 0, "decoding, {order:?}");
    }
}

/// Whatever a message claims, allocations stay in proportion to the received octets.
#[test]
fn claims_are_not_believed() {
    // A length of four thousand million in front of sixty octets.
    let mut octets = vec![0xff; 4];
    octets.extend([0; 60]);
    fn allocated<T: for<'a> Decode<'a>>(octets: &[u8]) -> u64 {
        let counted = allocation_counter::measure(|| {
            let decoded = T::decode(&mut Decoder::new(octets, ByteOrder::Big));
            assert!(decoded.is_err());
        });
        counted.bytes_total
    }
    assert_eq!(allocated::<Vec<f64>>(&octets), 0);
    assert_eq!(allocated::<Vec<u8>>(&octets), 0);
    assert_eq!(allocated::<String>(&octets), 0);
    assert_eq!(allocated::<hyoshi_wire::WString>(&octets), 0);
    assert_eq!(allocated::<Vec<Vec<String>>>(&octets), 0);
    // A claim that the received octets could satisfy, at each of three levels.
    octets = vec![];
    for level in 0..3u32 {
        octets.extend((250_000 - level).to_be_bytes());
    }
    octets.extend([0xff; 1_000_000]);
    assert!(allocated::<Vec<Vec<Vec<String>>>>(&octets) < 20_000);
}

#[test]
fn requests_and_replies_allocate_nothing() {
    let mut to = Encoder::new(ByteOrder::Little);
    to.reserve(4096);
    let mut messages = Reassembler::new(Limits::default());
    let contexts = [ServiceContext { tag: 10, data: &[1, 0, 0, 7] }];
    let counted = allocations(|| {
        for id in 0..8 {
            to.clear();
            let target = Target::Key(b"key");
            let header =
                RequestHeader { id, response: Response::Target, target, operation: "locate", contexts: &contexts };
            let begun = header.begin(&mut to).unwrap();
            "an argument".encode(&mut to).unwrap();
            begun.end(&mut to).unwrap();
            let header = ReplyHeader { id, status: ReplyStatus::NoException, contexts: &contexts };
            let begun = header.begin(&mut to).unwrap();
            1.5f64.encode(&mut to).unwrap();
            begun.end(&mut to).unwrap();

            let mut octets = to.bytes();
            let received = messages.next(&mut octets).unwrap().unwrap();
            let Ok(Message::Request(mut request)) = received.decode() else { panic!("a request") };
            assert_eq!((request.target.key(), request.operation), (Ok(&b"key"[..]), "locate"));
            assert_eq!(request.contexts.get(10), Some(&[1, 0, 0, 7][..]));
            assert_eq!(std::borrow::Cow::<str>::decode(&mut request.arguments).unwrap(), "an argument");
            let received = messages.next(&mut octets).unwrap().unwrap();
            let Ok(Message::Reply(mut reply)) = received.decode() else { panic!("a reply") };
            assert_eq!((reply.id, f64::decode(&mut reply.body)), (id, Ok(1.5)));
            assert!(messages.next(&mut octets).unwrap().is_none());
        }
    });
    assert_eq!(counted, 0);
}

/// The smallest parts of a type code, as many as possible: memory in proportion to octets.
#[test]
fn type_codes_take_memory_in_proportion() {
    let names = vec![""; 100_000];
    let members = TypeCode::build(|types| {
        types.structure("", "", |types| {
            let of = u8::describe(types);
            names.iter().map(move |name| (*name, of)).collect::<Vec<_>>()
        })
    });
    let enumerators = TypeCode::build(|types| types.enumeration("", "", &names));
    let sequences = TypeCode::build(|types| {
        types
            .structure("", "", |types| names.iter().map(|name| (*name, <Vec<u8>>::describe(types))).collect::<Vec<_>>())
    });
    let cases = TypeCode::build(|types| {
        types.union("", "", u8::describe, |types| {
            let of = u8::describe(types);
            names.iter().map(move |name| (Some(1), *name, of)).collect::<Vec<_>>()
        })
    });
    for code in [members, enumerators, sequences, cases] {
        let mut to = Encoder::new(ByteOrder::Big);
        code.encode(&mut to).unwrap();
        let counted = allocation_counter::measure(|| {
            TypeCode::decode(&mut Decoder::new(to.bytes(), ByteOrder::Big)).unwrap();
        });
        let ratio = counted.bytes_max as f64 / to.len() as f64;
        assert!(ratio < 20.0, "{ratio:.1} times {} octets", to.len());
    }
}
