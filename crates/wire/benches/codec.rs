//! The cost of encoding and decoding, compared with a copy of the same octets. `cargo bench -p hyoshi-wire`

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use hyoshi_wire::{Any, ByteOrder, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, Typed};
use hyoshi_wire::{TypeIndex, Types};

/// 1 KiB on the wire: numbers of all sizes, booleans, arrays.
#[derive(Clone, Debug, PartialEq)]
struct Mixed {
    rows: [Row; 16],
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    id: u32,
    valid: bool,
    kind: u16,
    position: [f64; 3],
    count: i64,
    quality: f32,
    flags: [u8; 20],
}

impl Encode for Row {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.id.encode(to)?;
        self.valid.encode(to)?;
        self.kind.encode(to)?;
        self.position.encode(to)?;
        self.count.encode(to)?;
        self.quality.encode(to)?;
        self.flags.encode(to)
    }
}

impl Decode<'_> for Row {
    const LEAST: usize = 63;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Row {
            id: Decode::decode(from)?,
            valid: Decode::decode(from)?,
            kind: Decode::decode(from)?,
            position: Decode::decode(from)?,
            count: Decode::decode(from)?,
            quality: Decode::decode(from)?,
            flags: Decode::decode(from)?,
        })
    }
}

impl Typed for Row {
    fn describe(types: &mut Types) -> TypeIndex {
        types.structure("IDL:Row:1.0", "Row", |types| {
            [
                ("id", u32::describe(types)),
                ("valid", bool::describe(types)),
                ("kind", u16::describe(types)),
                ("position", <[f64; 3]>::describe(types)),
                ("count", i64::describe(types)),
                ("quality", f32::describe(types)),
                ("flags", <[u8; 20]>::describe(types)),
            ]
        })
    }
}

fn row() -> Row {
    let flags = [7; 20];
    Row { id: 7, valid: true, kind: 3, position: [1.0, 2.0, 3.0], count: -9, quality: 0.5, flags }
}

impl Encode for Mixed {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.rows.encode(to)
    }
}

impl Decode<'_> for Mixed {
    const LEAST: usize = 1008;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Mixed { rows: Decode::decode(from)? })
    }
}

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

fn encoding<T: Encode>(bencher: Bencher, order: ByteOrder, value: &T) {
    let mut to = Encoder::new(order);
    value.encode(&mut to).unwrap();
    bencher.counter(BytesCount::new(to.len())).bench_local(|| {
        to.clear();
        black_box(value).encode(&mut to)
    });
}

fn decoding<T: Encode + for<'a> Decode<'a>>(bencher: Bencher, order: ByteOrder, value: &T) {
    let mut to = Encoder::new(order);
    value.encode(&mut to).unwrap();
    let octets = to.into_bytes();
    bencher
        .counter(BytesCount::new(octets.len()))
        .bench_local(|| T::decode(&mut Decoder::new(black_box(&octets), order)).unwrap());
}

#[divan::bench(args = ORDERS)]
fn encode_struct_of_1_kib(bencher: Bencher, order: ByteOrder) {
    encoding(bencher, order, &Mixed { rows: [row(); 16] });
}

#[divan::bench(args = ORDERS)]
fn decode_struct_of_1_kib(bencher: Bencher, order: ByteOrder) {
    decoding(bencher, order, &Mixed { rows: [row(); 16] });
}

#[divan::bench(args = ORDERS)]
fn encode_64_kib_of_octets(bencher: Bencher, order: ByteOrder) {
    encoding(bencher, order, &vec![1u8; 65536]);
}

#[divan::bench(args = ORDERS)]
fn decode_64_kib_of_octets(bencher: Bencher, order: ByteOrder) {
    decoding(bencher, order, &vec![1u8; 65536]);
}

#[divan::bench]
fn decode_64_kib_of_octets_borrowed(bencher: Bencher) {
    let mut to = Encoder::new(ByteOrder::NATIVE);
    [1u8; 65536].as_slice().encode(&mut to).unwrap();
    let octets = to.into_bytes();
    bencher.bench_local(|| <&[u8]>::decode(&mut Decoder::new(black_box(&octets), ByteOrder::NATIVE)).unwrap().len());
}

#[divan::bench(args = ORDERS)]
fn encode_8192_doubles(bencher: Bencher, order: ByteOrder) {
    encoding(bencher, order, &vec![1.5f64; 8192]);
}

#[divan::bench(args = ORDERS)]
fn decode_8192_doubles(bencher: Bencher, order: ByteOrder) {
    decoding(bencher, order, &vec![1.5f64; 8192]);
}

#[divan::bench(args = ORDERS)]
fn encode_32768_shorts(bencher: Bencher, order: ByteOrder) {
    encoding(bencher, order, &vec![7i16; 32768]);
}

#[divan::bench(args = ORDERS)]
fn decode_32768_shorts(bencher: Bencher, order: ByteOrder) {
    decoding(bencher, order, &vec![7i16; 32768]);
}

#[divan::bench]
fn encode_100_strings(bencher: Bencher) {
    encoding(bencher, ByteOrder::NATIVE, &vec!["a name of some length".to_string(); 100]);
}

#[divan::bench]
fn decode_100_strings(bencher: Bencher) {
    decoding(bencher, ByteOrder::NATIVE, &vec!["a name of some length".to_string(); 100]);
}

#[divan::bench]
fn any_of_a_struct(bencher: Bencher) {
    bencher.bench_local(|| Any::of(black_box(&row())).unwrap());
}

#[divan::bench(args = ORDERS)]
fn encode_any(bencher: Bencher, order: ByteOrder) {
    encoding(bencher, order, &Any::of(&row()).unwrap());
}

#[divan::bench(args = ORDERS)]
fn decode_any(bencher: Bencher, order: ByteOrder) {
    decoding(bencher, order, &Any::of(&row()).unwrap());
}

#[divan::bench]
fn get_from_any(bencher: Bencher) {
    let any = Any::of(&row()).unwrap();
    bencher.bench_local(|| black_box(&any).get::<Row>().unwrap());
}

#[divan::bench(args = ORDERS)]
fn any_of_8192_doubles(bencher: Bencher, order: ByteOrder) {
    decoding(bencher, order, &Any::of(&vec![1.5f64; 8192]).unwrap());
}

/// The speed of memory.
#[divan::bench]
fn copy_64_kib(bencher: Bencher) {
    let (from, mut to) = (vec![1u8; 65536], Vec::with_capacity(65536));
    bencher.counter(BytesCount::new(65536usize)).bench_local(|| {
        to.clear();
        to.extend_from_slice(black_box(&from));
    });
}

fn main() {
    divan::main();
}
