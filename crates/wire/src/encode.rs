//! Encodes what the server sends. Every message is appended to one output buffer, which the
//! connection writes to its socket as rarely as the protocol allows.

use firn_base::encoding::Encoding;
use firn_base::{Error, Type};
use firn_session::{Column, CommandTag, CopyFormat, Notification, TransactionStatus};

use crate::decode::{Format, format_of};
use std::ops::{Deref, DerefMut};

/// The output buffer, and the encoding of the strings that are appended to it.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    pub(crate) encoding: Encoding,
}

impl Deref for Output {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Output {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// Whether strings have to be converted before they are sent.
pub(crate) fn converts(encoding: Encoding) -> bool {
    !matches!(encoding, Encoding::Utf8 | Encoding::SqlAscii)
}

/// Appends a message: its tag, its length, and what `body` appends.
#[inline]
pub(crate) fn message(output: &mut Output, tag: u8, body: impl FnOnce(&mut Output)) {
    output.push(tag);
    length_prefixed(output, 4, body);
}

/// Appends a 32-bit length, which counts `extra` bytes more than `body` appends, and those bytes.
#[inline]
pub(crate) fn length_prefixed(output: &mut Output, extra: usize, body: impl FnOnce(&mut Output)) {
    let start = output.len();
    output.extend_from_slice(&[0; 4]);
    body(output);
    let length = i32::try_from(output.len() - start - 4 + extra).expect("messages stay below 2 GiB");
    output[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a string and the zero byte that ends it. Zero bytes inside would end it early, so they
/// are left out; only a message that quotes malformed input can contain one.
fn text(output: &mut Output, text: &str) {
    if converts(output.encoding) {
        // A character without a code in the client's encoding becomes a question mark: an error could not be reported here.
        let mut buffer = [0; 4];
        for character in text.chars().filter(|character| *character != '\0') {
            let encoding = output.encoding;
            if encoding.write(character.encode_utf8(&mut buffer), output).is_err() {
                output.push(b'?');
            }
        }
        output.push(0);
        return;
    }
    for piece in text.as_bytes().split(|byte| *byte == 0) {
        output.extend_from_slice(piece);
    }
    output.push(0);
}

fn count(output: &mut Output, count: usize) {
    let count = u16::try_from(count).expect("the engine limits columns to 1,600 and parameters to 65,535");
    output.extend_from_slice(&count.to_be_bytes());
}

/// The messages of authentication.
pub(crate) enum Authentication<'a> {
    /// The client is authenticated.
    Ok,
    /// Asks for SASL with one of these mechanisms.
    Sasl(&'a [&'a str]),
    /// The server's first SASL message.
    SaslContinue(&'a str),
    /// The server's last SASL message.
    SaslFinal(&'a str),
}

pub(crate) fn authentication(output: &mut Output, step: Authentication<'_>) {
    message(output, b'R', |output| match step {
        Authentication::Ok => output.extend_from_slice(&0u32.to_be_bytes()),
        Authentication::Sasl(mechanisms) => {
            output.extend_from_slice(&10u32.to_be_bytes());
            mechanisms.iter().for_each(|mechanism| text(output, mechanism));
            output.push(0);
        }
        Authentication::SaslContinue(data) => {
            output.extend_from_slice(&11u32.to_be_bytes());
            output.extend_from_slice(data.as_bytes());
        }
        Authentication::SaslFinal(data) => {
            output.extend_from_slice(&12u32.to_be_bytes());
            output.extend_from_slice(data.as_bytes());
        }
    });
}

pub(crate) fn backend_key_data(output: &mut Output, process: u32, key: [u8; 4]) {
    message(output, b'K', |output| {
        output.extend_from_slice(&process.to_be_bytes());
        output.extend_from_slice(&key);
    });
}

/// Reports that 3.0 is the newest supported version, and which `_pq_.` options are unknown.
pub(crate) fn negotiate_protocol_version(output: &mut Output, unknown_options: &[&str]) {
    message(output, b'v', |output| {
        output.extend_from_slice(&(3u32 << 16).to_be_bytes());
        output.extend_from_slice(&(unknown_options.len() as u32).to_be_bytes());
        unknown_options.iter().for_each(|option| text(output, option));
    });
}

pub(crate) fn parameter_status(output: &mut Output, name: &str, value: &str) {
    message(output, b'S', |output| {
        text(output, name);
        text(output, value);
    });
}

pub(crate) fn ready_for_query(output: &mut Output, status: TransactionStatus) {
    let status = match status {
        TransactionStatus::Idle => b'I',
        TransactionStatus::InBlock => b'T',
        TransactionStatus::Failed => b'E',
    };
    output.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
}

/// The severity of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// Nothing failed.
    Notice,
}

pub(crate) fn error(output: &mut Output, severity: Severity, error: &Error) {
    let (tag, name) = match severity {
        Severity::Error => (b'E', "ERROR"),
        Severity::Fatal => (b'E', "FATAL"),
        Severity::Notice if error.state().is_warning() => (b'N', "WARNING"),
        Severity::Notice => (b'N', "NOTICE"),
    };
    message(output, tag, |output| {
        let mut field = |code: u8, value: &str| {
            output.push(code);
            text(output, value);
        };
        field(b'S', name);
        field(b'V', name);
        field(b'C', error.state().as_str());
        field(b'M', error.message());
        let position = error.position().map(|position| position.to_string());
        // In PostgreSQL's order.
        for (code, value) in [
            (b'D', error.detail()),
            (b'H', error.hint()),
            (b'P', position.as_deref()),
            (b'W', error.context()),
            (b's', error.schema()),
            (b't', error.table()),
            (b'c', error.column()),
            (b'n', error.constraint()),
            (b'R', error.routine()),
        ] {
            if let Some(value) = value {
                field(code, value);
            }
        }
        output.push(0);
    });
}

/// A notification, for a session that listens to its channel.
pub(crate) fn notification(output: &mut Output, notification: &Notification) {
    message(output, b'A', |output| {
        output.extend_from_slice(&notification.session.to_be_bytes());
        text(output, &notification.channel);
        text(output, &notification.payload);
    });
}

/// Appends the tag as its `Display` shows it, without the formatter: it ends every statement.
pub(crate) fn command_complete(output: &mut Output, tag: &CommandTag) {
    if let CommandTag { verb: "SELECT", rows: Some(rows @ 0..10) } = *tag {
        let mut known = *b"C\0\0\0\x0dSELECT 0\0";
        known[12] += rows as u8;
        return output.extend_from_slice(&known);
    }
    message(output, b'C', |output| {
        output.extend_from_slice(tag.verb.as_bytes());
        if let Some(rows) = tag.shown_rows() {
            output.extend_from_slice(if tag.verb == "INSERT" { b" 0 " } else { b" " });
            output.extend_from_slice(itoa::Buffer::new().format(rows).as_bytes());
        }
        output.push(0);
    });
}

pub(crate) fn parse_complete(output: &mut Output) {
    output.extend_from_slice(b"1\0\0\0\x04");
}

pub(crate) fn bind_complete(output: &mut Output) {
    output.extend_from_slice(b"2\0\0\0\x04");
}

pub(crate) fn close_complete(output: &mut Output) {
    output.extend_from_slice(b"3\0\0\0\x04");
}

pub(crate) fn no_data(output: &mut Output) {
    output.extend_from_slice(b"n\0\0\0\x04");
}

pub(crate) fn empty_query_response(output: &mut Output) {
    output.extend_from_slice(b"I\0\0\0\x04");
}

pub(crate) fn portal_suspended(output: &mut Output) {
    output.extend_from_slice(b"s\0\0\0\x04");
}

pub(crate) fn copy_done(output: &mut Output) {
    output.extend_from_slice(b"c\0\0\0\x04");
}

/// Data in both directions follow.
pub(crate) fn copy_both_response(output: &mut Output) {
    // In binary format, without columns.
    message(output, b'W', |output| output.extend_from_slice(&[1, 0, 0]));
}

pub(crate) fn copy_data(output: &mut Output, data: &[u8]) {
    message(output, b'd', |output| output.extend_from_slice(data));
}

/// Starts COPY: `G` takes data in, `H` sends it out. Of its format the protocol shows only whether it is text.
pub(crate) fn copy_response(output: &mut Output, tag: u8, columns: usize, format: CopyFormat) {
    let code = u8::from(format.is_binary());
    message(output, tag, |output| {
        output.push(code);
        count(output, columns);
        (0..columns).for_each(|_| output.extend_from_slice(&[0, code]));
    });
}

pub(crate) fn parameter_description(output: &mut Output, types: &[Type]) {
    message(output, b't', |output| {
        count(output, types.len());
        for ty in types {
            output.extend_from_slice(&ty.id.0.to_be_bytes());
        }
    });
}

pub(crate) fn row_description(output: &mut Output, columns: &[Column], formats: &[Format]) {
    message(output, b'T', |output| {
        count(output, columns.len());
        for (index, column) in columns.iter().enumerate() {
            text(output, &column.name);
            let (table, number) = column.origin.map_or((0, 0), |origin| (origin.relation, origin.attribute));
            output.extend_from_slice(&table.to_be_bytes());
            output.extend_from_slice(&number.to_be_bytes());
            let length = column.ty.info().map_or(-1, |info| info.length);
            output.extend_from_slice(&column.ty.id.0.to_be_bytes());
            output.extend_from_slice(&length.to_be_bytes());
            output.extend_from_slice(&column.ty.modifier.to_be_bytes());
            let format = format_of(formats, index);
            output.extend_from_slice(&u16::from(format == Format::Binary).to_be_bytes());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::SqlState;

    #[test]
    fn an_error_carries_every_field_it_has() {
        let mut output = Output::default();
        let failure = Error::new(SqlState::UNIQUE_VIOLATION, "dup\0licate")
            .with_detail("d")
            .with_hint("h")
            .with_position(12)
            .with_context("w")
            .with_table("s", "t")
            .with_column("c")
            .with_constraint("pk");
        error(&mut output, Severity::Error, &failure);
        let expected = b"SERROR\0VERROR\0C23505\0Mduplicate\0Dd\0Hh\0P12\0Ww\0ss\0tt\0cc\0npk\0\0";
        assert_eq!(&output[5..], expected);
        assert_eq!(output[..5], [b'E', 0, 0, 0, expected.len() as u8 + 4]);
    }

    #[test]
    fn a_message_counts_its_own_length_field_but_not_its_tag() {
        let mut output = Output::default();
        command_complete(&mut output, &CommandTag { verb: "BEGIN", rows: None });
        ready_for_query(&mut output, TransactionStatus::InBlock);
        assert_eq!(&output[..], b"C\0\0\0\x0aBEGIN\0Z\0\0\0\x05T");
    }

    #[test]
    fn strings_are_sent_in_the_encoding_of_the_client() {
        let mut output = Output { encoding: Encoding::Latin1, ..Output::default() };
        parameter_status(&mut output, "n\u{e4}me", "5 \u{20ac}");
        assert_eq!(&output[5..], b"n\xe4me\x005 ?\0");
    }

    #[test]
    fn a_command_tag_is_sent_as_it_is_displayed() {
        for (verb, rows) in
            [("BEGIN", None), ("SHOW", Some(1)), ("INSERT", Some(12)), ("COPY", Some(u64::MAX))]
        {
            let mut output = Output::default();
            let tag = CommandTag { verb, rows };
            command_complete(&mut output, &tag);
            assert_eq!(output[5..output.len() - 1], *tag.to_string().as_bytes());
        }
    }
}
