//! What TLS asks of certificates beyond checking them: whose they are, and their hash as a channel's end point.
//!
//! ```text
//! Certificate    SEQUENCE { TBS, signature algorithm, signature }
//! TBS            SEQUENCE { [0] version?, serial INTEGER, algorithm, issuer Name, validity, subject Name, … }
//! Name           SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value }
//! algorithm      SEQUENCE { OBJECT IDENTIFIER, parameters? }
//! ```
//! (RFC 5280, section 4.1, in DER.) A certificate that does not look like that yields nothing: those of clients have been
//! checked by then, and those of the server were made by its owner.

use std::fmt::Write as _;

use firn_session::server::ClientCertificate;
use sha2::{Digest, Sha256, Sha384, Sha512};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;
const PSS_HASH: u8 = 0xa0;

/// RSA signatures (PKCS #1), before the byte that says with which hash.
const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// ECDSA with SHA-1.
const ECDSA_SHA1: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
/// ECDSA with SHA-2, before the byte that says with which.
const ECDSA_SHA2: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
/// SHA-2, before the byte that says which.
const SHA2: [u8; 8] = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];

/// Values in DER, one after the other.
#[derive(Clone, Copy)]
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// The tag and the content of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (length, rest) = rest.split_first()?;
        let (length, rest) = match length {
            0..=0x7f => (usize::from(*length), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The content of the next value, which has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    fn inside(&mut self, tag: u8) -> Option<Values<'a>> {
        self.expect(tag).map(Values)
    }
}

/// The hash of a server's certificate to which SCRAM binds a channel (RFC 5929, `tls-server-end-point`): with the hash of its
/// signature, but with SHA-256 instead of MD5 and SHA-1. `None` if its signature has no such hash (Ed25519).
pub fn channel_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let mut parts = Values(certificate).inside(SEQUENCE)?;
    parts.expect(SEQUENCE)?;
    let mut algorithm = parts.inside(SEQUENCE)?;
    let identifier = algorithm.expect(OBJECT_IDENTIFIER)?;
    let bits = match identifier.split_last()? {
        (4 | 5 | 11, prefix) if prefix == RSA => 256,
        (12, prefix) if prefix == RSA => 384,
        (13, prefix) if prefix == RSA => 512,
        (10, prefix) if prefix == RSA => pss_bits(algorithm)?,
        (2, prefix) if prefix == ECDSA_SHA2 => 256,
        (3, prefix) if prefix == ECDSA_SHA2 => 384,
        (4, prefix) if prefix == ECDSA_SHA2 => 512,
        _ if identifier == ECDSA_SHA1 => 256,
        _ => return None,
    };
    Some(match bits {
        256 => Sha256::digest(certificate).to_vec(),
        384 => Sha384::digest(certificate).to_vec(),
        _ => Sha512::digest(certificate).to_vec(),
    })
}

/// Of which length the hash of an RSA signature by PSS is; it is among the parameters (RFC 4055, section 3.1).
fn pss_bits(mut algorithm: Values<'_>) -> Option<u32> {
    let mut parameters = algorithm.inside(SEQUENCE)?;
    // SHA-1, if it is not said.
    let Some((PSS_HASH, hash)) = parameters.next() else { return Some(256) };
    let identifier = Values(hash).inside(SEQUENCE)?.expect(OBJECT_IDENTIFIER)?;
    match identifier.split_last()? {
        (1, prefix) if prefix == SHA2 => Some(256),
        (2, prefix) if prefix == SHA2 => Some(384),
        (3, prefix) if prefix == SHA2 => Some(512),
        _ => None,
    }
}

/// Whose a client's certificate is, as `pg_stat_ssl` shows it.
pub(crate) fn describe(certificate: &[u8]) -> Option<ClientCertificate> {
    let mut parts = Values(certificate).inside(SEQUENCE)?.inside(SEQUENCE)?;
    let mut after_version = parts;
    if after_version.next()?.0 == VERSION {
        parts = after_version;
    }
    let serial = decimal(parts.expect(INTEGER)?);
    parts.expect(SEQUENCE)?;
    let issuer = name(parts.inside(SEQUENCE)?)?;
    parts.expect(SEQUENCE)?;
    let subject = name(parts.inside(SEQUENCE)?)?;
    Some(ClientCertificate { subject, issuer, serial })
}

/// A number without a sign in decimal digits.
fn decimal(bytes: &[u8]) -> String {
    // Digits from the last one on.
    let mut digits = vec![0_u32];
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            let number = *digit * 256 + carry;
            (*digit, carry) = (number % 10, number / 10);
        }
        while carry > 0 {
            digits.push(carry % 10);
            carry /= 10;
        }
    }
    digits.iter().rev().map(|digit| char::from_digit(*digit, 10).expect("below ten")).collect()
}

/// A name as OpenSSL writes it in one line: `/C=DE/CN=ada`.
fn name(mut parts: Values<'_>) -> Option<String> {
    let mut written = String::new();
    while !parts.0.is_empty() {
        let mut set = parts.inside(SET)?;
        while !set.0.is_empty() {
            let mut attribute = set.inside(SEQUENCE)?;
            let kind = attribute.expect(OBJECT_IDENTIFIER)?;
            let (tag, value) = attribute.next()?;
            let _ = write!(written, "/{}=", attribute_name(kind));
            write_escaped(&mut written, &text(tag, value)?);
        }
    }
    Some(written)
}

/// OpenSSL's short name of an attribute of a name, or its number.
fn attribute_name(identifier: &[u8]) -> String {
    let known = match identifier {
        [0x55, 0x04, attribute] => match attribute {
            3 => "CN",
            4 => "SN",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "street",
            10 => "O",
            11 => "OU",
            12 => "title",
            13 => "description",
            41 => "name",
            42 => "GN",
            43 => "initials",
            _ => "",
        },
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01] => "emailAddress",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19] => "DC",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in identifier {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            numbers.push(std::mem::take(&mut number));
        }
    }
    // The first two are one.
    if let Some(first) = numbers.first().copied() {
        let whole = (first / 40).min(2);
        numbers.splice(..1, [whole, first - 40 * whole]);
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

/// A string of one of the kinds that certificates have.
fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, NumericString, PrintableString, IA5String, VisibleString.
        0x0c | 0x12 | 0x13 | 0x16 | 0x1a => String::from_utf8(value.to_vec()).ok(),
        // TeletexString, which is Latin 1 where it is used.
        0x14 => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        // UniversalString, BMPString.
        0x1c => {
            let (characters, []) = value.as_chunks::<4>() else { return None };
            characters.iter().map(|bytes| char::from_u32(u32::from_be_bytes(*bytes))).collect()
        }
        0x1e => {
            let (units, []) = value.as_chunks::<2>() else { return None };
            String::from_utf16(&units.iter().map(|bytes| u16::from_be_bytes(*bytes)).collect::<Vec<_>>()).ok()
        }
        _ => None,
    }
}

/// Escapes as RFC 2253 does (section 2.4), so that a value cannot pass for several.
fn write_escaped(written: &mut String, text: &str) {
    let last = text.chars().count().saturating_sub(1);
    for (at, character) in text.chars().enumerate() {
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => written.extend(['\\', character]),
            '#' if at == 0 => written.push_str("\\#"),
            ' ' if at == 0 || at == last => written.push_str("\\ "),
            '\0'..='\x1f' | '\x7f' => drop(write!(written, "\\{:02X}", u32::from(character))),
            _ => written.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, PKCS_ECDSA_P256_SHA256,
        PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SerialNumber, SignatureAlgorithm,
    };

    fn signed(algorithm: &'static SignatureAlgorithm, name: DistinguishedName) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = name;
        params.serial_number = Some(SerialNumber::from(vec![1, 0, 0, 0, 0, 0, 0, 0, 0]));
        params.self_signed(&KeyPair::generate_for(algorithm).unwrap()).unwrap().der().to_vec()
    }

    fn name(parts: Vec<(DnType, DnValue)>) -> DistinguishedName {
        let mut name = DistinguishedName::new();
        parts.into_iter().for_each(|(kind, value)| name.push(kind, value));
        name
    }

    #[test]
    fn the_end_point_is_hashed_as_the_certificate_was_signed() {
        let signed = |algorithm| signed(algorithm, DistinguishedName::new());
        let certificate = signed(&PKCS_ECDSA_P256_SHA256);
        assert_eq!(channel_end_point(&certificate), Some(Sha256::digest(&certificate).to_vec()));
        let certificate = signed(&PKCS_ECDSA_P384_SHA384);
        assert_eq!(channel_end_point(&certificate), Some(Sha384::digest(&certificate).to_vec()));
        assert_eq!(channel_end_point(&signed(&PKCS_ED25519)), None);
    }

    /// Algorithms that are made here, around nothing.
    #[test]
    fn signatures_of_rsa_are_known_with_their_hashes() {
        let certificate = |identifier: &[u8], parameters: &[u8]| {
            let value = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
            let algorithm = [value(OBJECT_IDENTIFIER, identifier), parameters.to_vec()].concat();
            value(SEQUENCE, &[value(SEQUENCE, &[]), value(SEQUENCE, &algorithm), vec![3, 0]].concat())
        };
        let bytes = |identifier: &[u8], parameters: &[u8]| {
            channel_end_point(&certificate(identifier, parameters)).map(|hash| hash.len())
        };
        for (last, expected) in [(4, 32), (5, 32), (11, 32), (12, 48), (13, 64)] {
            assert_eq!(bytes(&[&RSA[..], &[last]].concat(), &[5, 0]), Some(expected));
        }
        assert_eq!(bytes(&[&RSA[..], &[14]].concat(), &[5, 0]), None);
        assert_eq!(bytes(&ECDSA_SHA1, &[]), Some(32));
        assert_eq!(bytes(&[&ECDSA_SHA2[..], &[4]].concat(), &[]), Some(64));
        let pss = [&RSA[..], &[10]].concat();
        assert_eq!(bytes(&pss, &[SEQUENCE, 0]), Some(32));
        for (last, expected) in [(1, Some(32)), (2, Some(48)), (3, Some(64)), (4, None)] {
            let hash = [&[OBJECT_IDENTIFIER, 9], &SHA2[..], &[last]].concat();
            let parameters = [&[SEQUENCE, 15, PSS_HASH, 13, SEQUENCE, 11], &hash[..]].concat();
            assert_eq!(bytes(&pss, &parameters), expected);
        }
    }

    #[test]
    fn owners_are_shown_as_openssl_writes_them() {
        let certificate = signed(
            &PKCS_ECDSA_P256_SHA256,
            name(vec![
                (DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap())),
                (DnType::OrganizationName, DnValue::Utf8String("Schnee, Öl & \"Söhne\"".into())),
                (DnType::CommonName, DnValue::BmpString("ada ".try_into().unwrap())),
                (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99_999, 3]), DnValue::Utf8String("#x\n".into())),
            ]),
        );
        let shown = describe(&certificate).unwrap();
        let expected = r#"/C=DE/O=Schnee\, Öl & \"Söhne\"/CN=ada\ /1.3.6.1.4.1.99999.3=\#x\0A"#;
        assert_eq!(
            shown,
            ClientCertificate {
                subject: expected.to_owned(),
                issuer: expected.to_owned(),
                serial: "18446744073709551616".to_owned(),
            }
        );
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let certificate = signed(&PKCS_ECDSA_P256_SHA256, name(vec![(DnType::CommonName, "ada".into())]));
        for at in 0..certificate.len() {
            let mut damaged = certificate.clone();
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                damaged[at] = byte;
                let _ = (describe(&damaged), channel_end_point(&damaged));
            }
            assert_eq!(describe(&certificate[..at]), None);
        }
    }
}
