//! No bytes make the protocol's decoder panic, and what it yields can be walked.
#![no_main]

// The file alone: the crate around it would include the whole engine.
#[allow(dead_code)]
#[path = "../../crates/wire/src/decode.rs"]
mod decode;

use decode::{Frame, Message, decode_message, decode_startup, frame_message, frame_startup};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Frame::Complete(length)) = frame_startup(bytes) {
        let _ = decode_startup(&bytes[..length]);
    }
    let _ = decode_startup(bytes);
    if let Ok(Frame::Complete(length)) = frame_message(bytes, 1 << 20) {
        let _ = decode_message(&bytes[..length]);
    }
    match decode_message(bytes) {
        Ok(Message::Bind(bind)) => {
            assert_eq!(bind.parameters().count(), bind.parameter_count);
            assert_eq!(bind.result_formats.iter().len(), bind.result_formats.count());
        }
        Ok(Message::Parse(parse)) => assert_eq!(parse.types().count(), parse.types().len()),
        _ => {}
    }
});
