//! Hashes of values, equal to those of PostgreSQL on little-endian machines: applications use `hashtext` and its relatives
//! to choose partitions and advisory locks.
//!
//! The function is lookup3 (Bob Jenkins, 2006), with PostgreSQL's first state and without a seed, or with one of 64 bits.

use crate::registry::RegistryBuilder;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str,), _>("hashtext(text) hashname(name)", |_, (text,)| of_bytes(text.as_bytes()));
    builder.scalar::<(&str,), _>("hashbpchar(bpchar)", |_, (text,)| {
        of_bytes(text.trim_end_matches(' ').as_bytes())
    });
    builder.scalar::<(&str, i64), _>(
        "hashtextextended(text,int8) hashnameextended(name,int8)",
        |_, (text, seed)| extended(text.as_bytes(), seed),
    );
    builder.scalar::<(&str, i64), _>("hashbpcharextended(bpchar,int8)", |_, (text, seed)| {
        extended(text.trim_end_matches(' ').as_bytes(), seed)
    });
    builder.scalar::<(i16,), _>("hashint2(int2)", |_, (value,)| of_word(i32::from(value) as u32));
    builder.scalar::<(i32,), _>("hashint4(int4)", |_, (value,)| of_word(value as u32));
    builder.scalar::<(i64,), _>("hashint8(int8)", |_, (value,)| of_word(folded(value)));
    builder.scalar::<(u32,), _>("hashoid(oid)", |_, (value,)| of_word(value));
    builder.scalar::<(i16, i64), _>("hashint2extended(int2,int8)", |_, (value, seed)| {
        word_extended(i32::from(value) as u32, seed)
    });
    builder.scalar::<(i32, i64), _>("hashint4extended(int4,int8)", |_, (value, seed)| {
        word_extended(value as u32, seed)
    });
    builder.scalar::<(i64, i64), _>("hashint8extended(int8,int8)", |_, (value, seed)| {
        word_extended(folded(value), seed)
    });
    builder
        .scalar::<(u32, i64), _>("hashoidextended(oid,int8)", |_, (value, seed)| word_extended(value, seed));
    builder.scalar::<([u8; 16],), _>("uuid_hash(uuid)", |_, (uuid,)| of_bytes(&uuid));
    builder.scalar::<([u8; 16], i64), _>("uuid_hash_extended(uuid,int8)", |_, (uuid, seed)| {
        extended(&uuid, seed)
    });
}

/// An integer of eight bytes so that it hashes as the same of four does.
fn folded(value: i64) -> u32 {
    let (low, high) = (value as u32, (value >> 32) as u32);
    low ^ if value >= 0 { high } else { !high }
}

const START: u32 = 0x9e37_79b9 + 3_923_095;

pub(super) fn of_bytes(bytes: &[u8]) -> i32 {
    state_of_bytes(bytes, 0).2 as i32
}

fn extended(bytes: &[u8], seed: i64) -> i64 {
    let (_, high, low) = state_of_bytes(bytes, seed as u64);
    (u64::from(high) << 32 | u64::from(low)) as i64
}

fn of_word(word: u32) -> i32 {
    state_of_word(word, 0).2 as i32
}

fn word_extended(word: u32, seed: i64) -> i64 {
    let (_, high, low) = state_of_word(word, seed as u64);
    (u64::from(high) << 32 | u64::from(low)) as i64
}

type State = (u32, u32, u32);

/// The state for so many bytes; a seed is mixed in unless it is 0.
fn start(length: usize, seed: u64) -> State {
    let start = START.wrapping_add(length as u32);
    match seed {
        0 => (start, start, start),
        seed => mix((start.wrapping_add((seed >> 32) as u32), start.wrapping_add(seed as u32), start)),
    }
}

fn state_of_bytes(bytes: &[u8], seed: u64) -> State {
    let (mut a, mut b, mut c) = start(bytes.len(), seed);
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("it has four bytes"));
    let mut chunks = bytes.chunks_exact(12);
    for chunk in &mut chunks {
        a = a.wrapping_add(word(&chunk[..4]));
        b = b.wrapping_add(word(&chunk[4..8]));
        c = c.wrapping_add(word(&chunk[8..]));
        (a, b, c) = mix((a, b, c));
    }
    // Of the last word the lowest byte is left to the length.
    let mut last = [0; 12];
    let rest = chunks.remainder();
    last[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
    if rest.len() > 8 {
        last[9..rest.len() + 1].copy_from_slice(&rest[8..]);
    }
    a = a.wrapping_add(word(&last[..4]));
    b = b.wrapping_add(word(&last[4..8]));
    c = c.wrapping_add(word(&last[8..]));
    finish((a, b, c))
}

fn state_of_word(word: u32, seed: u64) -> State {
    let (a, b, c) = start(size_of::<u32>(), seed);
    finish((a.wrapping_add(word), b, c))
}

fn mix((mut a, mut b, mut c): State) -> State {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    (a, b, c)
}

fn finish((mut a, mut b, mut c): State) -> State {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (a, b, c)
}
