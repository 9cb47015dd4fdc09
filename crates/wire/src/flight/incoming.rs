//! Arrow messages that clients send, none of which is trusted.
//!
//! A message of a few bytes can claim to hold any number of rows, or to expand to any size when it is decompressed. An
//! allocation that fails ends the whole process. So the claims of a message are compared with its bytes before arrow
//! decodes it, and the result with the memory that a call may use ([`arrow::refuse_claims`]). A panic of the decoder
//! ends only the call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_ipc::{MessageHeader, RecordBatch as BatchHeader};
use arrow_schema::SchemaRef;
use firn_base::{Error, SqlState, Value};
use firn_session::arrow;
use futures::{Stream, StreamExt, future};
use tonic::Status;

use super::status::status;

/// The most rows that one message may hold.
const MOST_ROWS: i64 = 1 << 24;

type Answered<T> = std::result::Result<T, Status>;

/// The content of a message.
pub(super) enum Decoded {
    Schema(SchemaRef),
    Batch(RecordBatch),
}

/// Decodes a client's messages. A batch may expand to about `most_bytes`.
pub(super) fn decoded(
    messages: impl Stream<Item = Answered<FlightData>> + Send + 'static,
    most_bytes: usize,
) -> impl Stream<Item = Answered<Decoded>> + Send + Unpin + 'static {
    let inspected = messages.map(|message| {
        let message = message.map_err(FlightError::from)?;
        inspect(&message).map_err(|error| FlightError::from(status(error)))?;
        Ok(message)
    });
    let decoder = FlightDataDecoder::new(inspected);
    let payloads = AssertUnwindSafe(decoder).catch_unwind().map(|message| match message {
        Ok(Ok(message)) => Ok(message.payload),
        Ok(Err(FlightError::Tonic(status))) => Err(*status),
        Ok(Err(error)) => Err(status(malformed(error))),
        // Where arrow's checks have a gap, slicing and indexing panic.
        Err(_) => Err(status(malformed("an inconsistent Arrow message"))),
    });
    let decoded = payloads.filter_map(move |payload| {
        future::ready(match payload {
            Ok(DecodedPayload::None) => None,
            Ok(DecodedPayload::Schema(schema)) => Some(Ok(Decoded::Schema(schema))),
            Ok(DecodedPayload::RecordBatch(batch)) => {
                let allowed = guarded(|| arrow::refuse_claims(&batch, most_bytes));
                Some(allowed.map(|()| Decoded::Batch(batch)).map_err(status))
            }
            Err(status) => Some(Err(status)),
        })
    });
    Box::pin(decoded)
}

/// The rows of a client's batch as values, whose memory is subtracted from `budget`.
pub(super) fn rows(batch: &RecordBatch, budget: &mut usize) -> firn_base::Result<Vec<Vec<Value>>> {
    guarded(|| arrow::rows(batch, budget))
}

/// A panic while a client's message is processed is the client's fault rather than ours, and does not end its connection.
fn guarded<T>(work: impl FnOnce() -> firn_base::Result<T>) -> firn_base::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(malformed("an inconsistent Arrow batch")))
}

/// Compares the claims of a message with its bytes.
fn inspect(message: &FlightData) -> firn_base::Result<()> {
    let header = arrow_ipc::root_as_message(&message.data_header).map_err(malformed)?;
    let batch = match header.header_type() {
        MessageHeader::RecordBatch => header.header_as_record_batch(),
        MessageHeader::DictionaryBatch => header.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => return Ok(()),
    };
    let batch = batch.ok_or_else(|| malformed("an Arrow message without a header"))?;
    inspect_batch(&batch, message.data_body.len())
}

fn inspect_batch(batch: &BatchHeader<'_>, body: usize) -> firn_base::Result<()> {
    if batch.compression().is_some() {
        // Only decompression would show the size.
        return Err(Error::unsupported("compressed Arrow batches")
            .with_hint("Send them without compression: neither LZ4 nor ZSTD."));
    }
    // A column inside lists may have more rows than the batch, each of at least a bit.
    let most = MOST_ROWS.max(i64::try_from(body).unwrap_or(i64::MAX).saturating_mul(8));
    let nodes = batch.nodes().into_iter().flatten();
    let lengths = nodes.map(|node| (node.length(), node.null_count()));
    for (length, nulls) in lengths.chain([(batch.length(), 0)]) {
        if length < 0 || !(0..=length).contains(&nulls) {
            return Err(malformed("an Arrow message with an impossible number of rows"));
        }
        if length > most {
            return Err(too_many_rows());
        }
    }
    if batch.length() > MOST_ROWS {
        return Err(too_many_rows());
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let end = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok())
            .and_then(|(offset, length)| offset.checked_add(length));
        if end.is_none_or(|end| end > body) {
            return Err(malformed("an Arrow message with a buffer outside of its body"));
        }
    }
    Ok(())
}

#[cold]
fn too_many_rows() -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("a batch of more than {MOST_ROWS} rows"))
        .with_hint("Send fewer rows at a time.")
}

#[cold]
fn malformed(what: impl std::fmt::Display) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, NullArray, RunArray, StringArray};
    use arrow_flight::utils::batches_to_flight_data;
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
    use firn_base::random::Random;
    use firn_base::sync::Arc;
    use futures::stream;

    const LIMIT: usize = 1 << 30;

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    }

    fn messages(batch: RecordBatch) -> Vec<FlightData> {
        batches_to_flight_data(&batch.schema(), vec![batch]).unwrap()
    }

    /// The batches that messages hold, or the SQLSTATE of why they are refused.
    fn decode(messages: Vec<FlightData>) -> std::result::Result<Vec<RecordBatch>, String> {
        let messages = stream::iter(messages.into_iter().map(Ok));
        let mut batches = Vec::new();
        for decoded in futures::executor::block_on_stream(decoded(messages, LIMIT)) {
            match decoded
                .map_err(|status| status.metadata().get("sqlstate").unwrap().to_str().unwrap().to_owned())?
            {
                Decoded::Schema(_) => {}
                Decoded::Batch(batch) => batches.push(batch),
            }
        }
        Ok(batches)
    }

    #[test]
    fn a_batch_arrives_as_it_was_sent() {
        let sent = batch(Arc::new(StringArray::from(vec![Some("a"), None, Some("снег")])));
        assert_eq!(decode(messages(sent.clone())).unwrap(), [sent]);
    }

    #[test]
    fn rows_that_a_message_only_claims_are_refused() {
        let runs =
            RunArray::<Int64Type>::try_new(&Int64Array::from(vec![1 << 40]), &StringArray::from(vec!["a"]));
        let claims: [ArrayRef; 2] = [Arc::new(NullArray::new(1 << 40)), Arc::new(runs.unwrap())];
        for claim in claims {
            assert_eq!(decode(messages(batch(claim))).unwrap_err(), "54000");
        }
        // Many columns of few rows are as bad as one of many.
        let column: ArrayRef = Arc::new(NullArray::new(1 << 20));
        let columns = (0..100).map(|number| (format!("c{number}"), column.clone()));
        let wide = RecordBatch::try_from_iter(columns).unwrap();
        assert_eq!(decode(messages(wide)).unwrap_err(), "54000");
        assert_eq!(decode(messages(batch(column))).unwrap()[0].num_rows(), 1 << 20);
    }

    #[test]
    fn compressed_batches_are_refused_whatever_they_claim() {
        let zeros = batch(Arc::new(Int64Array::from(vec![0; 10_000])));
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
            let (_, encoded) = IpcDataGenerator::default()
                .encode(&zeros, &mut DictionaryTracker::new(false), &options, &mut IpcWriteContext::default())
                .unwrap();
            let mut sent = messages(zeros.clone());
            sent[1] = encoded.into();
            // The buffer's first bytes are its decompressed size.
            let mut body = sent[1].data_body.to_vec();
            let at = body.windows(8).position(|bytes| bytes == 80_000_u64.to_le_bytes()).unwrap();
            body[at..at + 8].copy_from_slice(&(1_u64 << 62).to_le_bytes());
            sent[1].data_body = body.into();
            assert_eq!(decode(sent).unwrap_err(), "0A000");
        }
    }

    /// Offsets beyond the end, or falling, would cause reads out of bounds or a panic.
    #[test]
    fn offsets_that_lead_nowhere_are_refused() {
        let sent = messages(batch(Arc::new(StringArray::from(vec!["ab", "cd"]))));
        for offsets in [[0_i32, 2, 4000], [0, 4, 2], [-4, 2, 4], [0, i32::MAX, 4]] {
            let mut sent = sent.clone();
            let mut body = sent[1].data_body.to_vec();
            let written: Vec<u8> = [0_i32, 2, 4].iter().flat_map(|offset| offset.to_le_bytes()).collect();
            let at = body.windows(12).position(|bytes| bytes == written).unwrap();
            let wrong: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
            body[at..at + 12].copy_from_slice(&wrong);
            sent[1].data_body = body.into();
            assert_eq!(decode(sent).unwrap_err(), "08P01", "{offsets:?}");
        }
    }

    /// Valid messages with bytes changed and cut: decoding returns in every case.
    #[test]
    fn damaged_messages_end_in_an_error_or_in_rows() {
        let seed = std::env::var("FIRN_SEED").map_or(26, |seed| seed.parse().unwrap());
        println!("FIRN_SEED={seed}");
        let mut random = Random::seeded(seed);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("ab"), None, Some("cdef")]));
        let sent = messages(batch(texts));
        let mut refused = 0;
        for _ in 0..2000 {
            let mut sent = sent.clone();
            for _ in 0..random.uniform(1, 4) {
                let (mut header, mut body) = (sent[1].data_header.to_vec(), sent[1].data_body.to_vec());
                let part = if random.uniform(0, 1) == 0 { &mut header } else { &mut body };
                let last = part.len() as i64 - 1;
                match random.uniform(0, 9) {
                    0 => part.truncate(random.uniform(1, last) as usize),
                    _ => part[random.uniform(0, last) as usize] = random.uniform(0, 255) as u8,
                }
                (sent[1].data_header, sent[1].data_body) = (header.into(), body.into());
            }
            match decode(sent) {
                Ok(batches) => batches.iter().for_each(|batch| {
                    let _ = rows(batch, &mut LIMIT.clone());
                }),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 100, "{refused}");
    }
}
