//! Random values. Each call site has a generator of its own.

use crate::kernel::Rest;
use crate::registry::RegistryBuilder;
use firn_base::random::{Random, secret_bytes};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<Rest, _>("random()", |call, _| call.local.get(Random::from_entropy).unit());
    builder.scalar::<Rest, _>("gen_random_uuid()", |_, _| {
        let mut uuid: [u8; 16] = secret_bytes();
        // Version 4, variant 1 (RFC 4122, section 4.4).
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    });
}
