//! Arrow batches as they are sent: the types that clients get, and messages of a size that they accept.
//!
//! Tables hold strings as views: 16 bytes each, and the bytes of longer ones elsewhere. They are sent as Utf8 and
//! Binary, because JDBC does not read views and most strings take fewer bytes in this form. Also, every slice of
//! a view array carries all buffers of the array. A client that requests views gets them ([`Strings::Views`]),
//! with buffers that hold hardly any other strings.

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, Utf8Type};
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Type};
use firn_session::{Column, arrow, arrow_type};
use std::collections::HashMap;

use super::auth::Strings;
use super::message::Message;
use super::state::CATALOG;

/// The most bytes of data in a message, unless a single row has more. ADBC accepts 16 MiB.
const MESSAGE_BYTES: usize = 4 << 20;

/// The schema that clients get for the columns of a result.
pub(super) fn schema_of(columns: &[Column], strings: Strings) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|column| field_of(column, strings)).collect::<Vec<_>>()))
}

/// The schema for parameters.
pub(super) fn schema_of_parameters(types: &[Type], strings: Strings) -> Schema {
    let field = |(position, ty): (usize, &Type)| {
        Field::new(format!("${}", position + 1), sent_type(&arrow_type(*ty), strings), true)
    };
    Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>())
}

fn field_of(column: &Column, strings: Strings) -> FieldRef {
    let data_type = sent_type(&arrow_type(column.ty), strings);
    // What JDBC's ResultSetMetaData returns (Flight SQL's "column metadata").
    let mut metadata = HashMap::from([("ARROW:FLIGHT:SQL:CATALOG_NAME".to_owned(), CATALOG.to_owned())]);
    let mut insert = |key: &str, value: String| metadata.insert(format!("ARROW:FLIGHT:SQL:{key}"), value);
    insert("TYPE_NAME", column.ty.to_string());
    if let DataType::Decimal128(precision, scale) = data_type {
        insert("PRECISION", precision.to_string());
        insert("SCALE", scale.to_string());
    } else if let Some(length) = column.ty.length() {
        insert("PRECISION", length.to_string());
    }
    Arc::new(Field::new(&column.name, data_type, true).with_metadata(metadata))
}

/// The Arrow type that clients get for a type of results.
fn sent_type(ty: &DataType, strings: Strings) -> DataType {
    match (ty, strings) {
        (DataType::Utf8View, Strings::Plain) => DataType::Utf8,
        (DataType::BinaryView, Strings::Plain) => DataType::Binary,
        (DataType::List(element), _) => {
            let data_type = sent_type(element.data_type(), strings);
            DataType::List(Arc::new(element.as_ref().clone().with_data_type(data_type)))
        }
        (ty, _) => ty.clone(),
    }
}

/// The bytes of a schema as messages contain it.
pub(super) fn schema_bytes(schema: &Schema) -> Result<bytes::Bytes> {
    let options = IpcWriteOptions::default();
    let message: IpcMessage = SchemaAsIpc::new(schema, &options).try_into().map_err(internal)?;
    Ok(message.0)
}

/// Makes messages of batches.
pub(super) struct Encoder {
    schema: SchemaRef,
    stream: StreamEncoder,
}

impl Encoder {
    /// For batches that clients get with this schema. Also returns the message that precedes all others.
    pub fn new(schema: SchemaRef) -> Result<(Encoder, Message)> {
        let first = FlightData::from(SchemaAsIpc::new(&schema, &IpcWriteOptions::default()));
        let first = Message::new(&first.data_header, Vec::new())?;
        // The first batch contains the schema as in files.
        let mut stream = StreamEncoder::try_new(&schema).map_err(internal)?;
        stream.encode(&RecordBatch::new_empty(schema.clone())).map_err(internal)?;
        Ok((Encoder { schema, stream }, first))
    }

    /// Passes the messages of a batch to `send`, until that returns false: the client has gone.
    pub fn batch(&mut self, batch: &RecordBatch, send: &mut impl FnMut(Message) -> bool) -> Result<bool> {
        let columns = || batch.columns().iter().map(|column| &**column);
        // Mostly the batch is small enough even without reading the length of each string.
        if columns().map(sent_bytes).sum::<usize>() <= MESSAGE_BYTES
            && let Some(converted) = self.convert(batch, MESSAGE_BYTES)?
        {
            return self.message(&converted, send);
        }
        let parts = columns().map(data_bytes).sum::<usize>().div_ceil(MESSAGE_BYTES);
        let parts = parts.clamp(1, batch.num_rows().max(1));
        if parts == 1 {
            let converted = self.convert(batch, usize::MAX)?.expect("there is no limit");
            return self.message(&converted, send);
        }
        // Rows may differ in size: a part that is still too large is cut again.
        let rows = batch.num_rows().div_ceil(parts);
        for start in (0..batch.num_rows()).step_by(rows) {
            let part = batch.slice(start, rows.min(batch.num_rows() - start));
            if !self.batch(&part, send)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn message(&mut self, batch: &RecordBatch, send: &mut impl FnMut(Message) -> bool) -> Result<bool> {
        let pieces = self.stream.encode(batch).map_err(internal)?;
        Ok(send(flight_message(pieces)?))
    }

    /// The batch with the schema that clients get; `None` if it has more than `most` bytes.
    fn convert(&self, batch: &RecordBatch, most: usize) -> Result<Option<RecordBatch>> {
        let fields = self.schema.fields();
        if fields.len() != batch.num_columns() {
            return Err(Error::new(
                SqlState::INTERNAL_ERROR,
                format!(
                    "internal error: {} columns where {} are expected",
                    batch.num_columns(),
                    fields.len()
                ),
            ));
        }
        let mut left = most;
        let mut columns = Vec::with_capacity(fields.len());
        for (field, column) in fields.iter().zip(batch.columns()) {
            let Some(column) = converted(column, field.data_type(), left)? else { return Ok(None) };
            let Some(rest) = left.checked_sub(sent_bytes(&column)) else { return Ok(None) };
            left = rest;
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map(Some).map_err(internal)
    }
}

/// A message of the IPC format as one of Flight, which puts its metadata and its body into fields.
///
/// The pieces are 4 bytes of 0xff, the length of the metadata in 4 bytes, the metadata, and the buffers of the body,
/// each with its padding.
fn flight_message(pieces: Vec<Buffer>) -> Result<Message> {
    let mut pieces = pieces.into_iter();
    let prefix = pieces.next().expect("a message has a prefix");
    let length = prefix[4..].try_into().map(u32::from_le_bytes).expect("a prefix has 8 bytes") as usize;
    let mut header = Vec::with_capacity(length);
    while header.len() < length {
        header.extend_from_slice(&pieces.next().expect("metadata are as long as their prefix says"));
    }
    Message::new(&header, pieces.collect())
}

/// The array as one of the type that clients get; `None` if the strings of its views have more than `most` bytes.
fn converted(array: &ArrayRef, wanted: &DataType, most: usize) -> Result<Option<ArrayRef>> {
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    Ok(Some(match (array.data_type(), wanted) {
        (DataType::Utf8View, DataType::Utf8) => {
            let strings = arrow::strings_of::<_, Utf8Type>(array.as_string_view(), most);
            return Ok(strings.map(|strings| Arc::new(strings) as ArrayRef));
        }
        (DataType::BinaryView, DataType::Binary) => {
            let strings = arrow::strings_of::<_, BinaryType>(array.as_binary_view(), most);
            return Ok(strings.map(|strings| Arc::new(strings) as ArrayRef));
        }
        // Views of a few rows or of one column of a block would carry the strings of the whole block.
        (DataType::Utf8View, DataType::Utf8View) | (DataType::BinaryView, DataType::BinaryView) => {
            arrow::tightened(array)
        }
        (given, wanted) if given == wanted => array.clone(),
        (DataType::List(_), DataType::List(field)) => {
            let lists = array.as_list::<i32>();
            let (first, last) = (lists.value_offsets()[0], lists.value_offsets()[lists.len()]);
            let elements = lists.values().slice(first as usize, (last - first) as usize);
            let Some(elements) = converted(&elements, field.data_type(), most as usize)? else {
                return Ok(None);
            };
            let offsets: ScalarBuffer<i32> =
                lists.value_offsets().iter().map(|offset| offset - first).collect();
            let (offsets, nulls) = (OffsetBuffer::new(offsets), lists.nulls().cloned());
            Arc::new(ListArray::try_new(field.clone(), offsets, elements, nulls).map_err(internal)?)
        }
        (given, wanted) => {
            return Err(Error::internal(&format!("a column came as {given} and not as {wanted}")));
        }
    }))
}

/// The bytes of an array that is sent unchanged. Its views may refer to more.
fn sent_bytes(array: &dyn Array) -> usize {
    let buffers = |buffers: &[Buffer]| buffers.iter().map(Buffer::len).sum::<usize>();
    match array.data_type() {
        DataType::Utf8View => buffers(array.as_string_view().data_buffers()) + 16 * array.len(),
        DataType::BinaryView => buffers(array.as_binary_view().data_buffers()) + 16 * array.len(),
        _ => data_bytes(array),
    }
}

/// The approximate number of bytes of an array when it is sent.
fn data_bytes(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Utf8View => lengths(array.as_string_view().views()) + 16 * array.len(),
        DataType::BinaryView => lengths(array.as_binary_view().views()) + 16 * array.len(),
        DataType::Utf8 => {
            let offsets = array.as_string::<i32>().value_offsets();
            (offsets[array.len()] - offsets[0]) as usize + 4 * array.len()
        }
        DataType::Binary => {
            let offsets = array.as_binary::<i32>().value_offsets();
            (offsets[array.len()] - offsets[0]) as usize + 4 * array.len()
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            let (first, last) = (offsets[0] as usize, offsets[array.len()] as usize);
            data_bytes(lists.values().slice(first, last - first).as_ref()) + 4 * array.len()
        }
        DataType::Boolean => array.len() / 8,
        other => other.primitive_width().unwrap_or(16) * array.len(),
    }
}

/// The total length of the strings of views: the low 32 bits of each. A null may have any length, so the sum is approximate.
fn lengths(views: &[u128]) -> usize {
    views.iter().map(|view| *view as u32 as usize).sum()
}

#[cold]
pub(super) fn internal(error: ArrowError) -> Error {
    Error::new(SqlState::INTERNAL_ERROR, format!("internal error: {error}"))
        .with_hint("This is a bug in FirnDB; please report it with the statement.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{ListBuilder, StringViewBuilder};
    use arrow_array::{Int64Array, StringViewArray};
    use firn_base::TypeId;

    fn text_column() -> Column {
        Column { name: "text".to_owned(), ty: Type::new(TypeId::TEXT), origin: None }
    }

    fn messages(batch: &RecordBatch, columns: &[Column], strings: Strings) -> Vec<FlightData> {
        let (mut encoder, _) = Encoder::new(schema_of(columns, strings)).unwrap();
        let mut messages = Vec::new();
        let all = encoder.batch(batch, &mut |message| {
            messages.push(message.read());
            true
        });
        assert!(all.unwrap());
        messages
    }

    fn text_batch(rows: usize, bytes: usize) -> RecordBatch {
        let texts: StringViewArray =
            (0..rows).map(|row| Some(format!("{row:9}{}", "x".repeat(bytes - 9)))).collect();
        RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap()
    }

    fn body(messages: &[FlightData]) -> usize {
        messages.iter().map(|message| message.data_body.len()).sum()
    }

    #[test]
    fn slices_of_one_string_array_do_not_each_bring_all_its_bytes() {
        let columns = [text_column()];
        let whole = text_batch(10_000, 100);
        for (strings, most) in [(Strings::Plain, 1_100_000), (Strings::Views, 1_300_000)] {
            let sent: usize =
                (0..10).map(|part| body(&messages(&whole.slice(part * 1000, 1000), &columns, strings))).sum();
            assert!((1_000_000..most).contains(&sent), "{sent} bytes as {strings:?}");
        }
    }

    #[test]
    fn messages_hold_no_more_than_clients_take_and_all_rows() {
        let columns = [text_column()];
        let large = text_batch(2000, 10_000);
        let sent = messages(&large, &columns, Strings::Plain);
        assert!(sent.len() >= 5);
        assert!(sent.iter().all(|message| message.data_body.len() <= MESSAGE_BYTES + 20_000));
        assert!(body(&sent) >= 20_000_000);
        // A single row is sent whatever its size.
        assert_eq!(messages(&text_batch(1, 3 * MESSAGE_BYTES), &columns, Strings::Plain).len(), 1);
    }

    #[test]
    fn strings_that_share_their_bytes_are_counted_as_they_go_out() {
        let columns = [text_column()];
        let shared = vec![b'x'; 10_000];
        let view = arrow_array::builder::make_view(&shared, 0, 0);
        let texts = StringViewArray::try_new(vec![view; 2000].into(), vec![shared.into()], None).unwrap();
        let batch = RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap();
        let plain = messages(&batch, &columns, Strings::Plain);
        assert!(plain.len() >= 5 && body(&plain) >= 20_000_000);
        assert!(plain.iter().all(|message| message.data_body.len() <= MESSAGE_BYTES + 20_000));
        // As views they share them.
        let views = messages(&batch, &columns, Strings::Views);
        assert!(views.len() == 1 && body(&views) < 50_000);
    }

    #[test]
    fn sending_ends_when_the_receiver_is_dropped() {
        let schema = schema_of(&[text_column()], Strings::Plain);
        let (mut encoder, _) = Encoder::new(schema).unwrap();
        let mut sent = 0;
        let all = encoder.batch(&text_batch(2000, 10_000), &mut |_| {
            sent += 1;
            false
        });
        assert_eq!((all.unwrap(), sent), (false, 1));
    }

    #[test]
    fn strings_of_any_length_go_out_side_by_side() {
        let text = |at: usize| (!at.is_multiple_of(5)).then(|| "x".repeat(at % 90) + "y");
        let views: StringViewArray = (0..400).map(text).collect();
        for part in [views.slice(0, 400), views.slice(17, 100), views.slice(1, 3), views.slice(3, 0)] {
            let part: ArrayRef = Arc::new(part);
            let plain = converted(&part, &DataType::Utf8, usize::MAX).unwrap().unwrap();
            assert!(plain.as_string::<i32>().iter().eq(part.as_string_view().iter()));
            plain.to_data().validate_full().unwrap();
        }
    }

    #[test]
    fn lists_of_strings_go_out_as_clients_take_strings() {
        let mut builder = ListBuilder::new(StringViewBuilder::new());
        builder.append_value([Some("left out")]);
        builder.append_value([Some("a"), None, Some("longer than twelve bytes")]);
        builder.append_null();
        builder.append_value([Some("b")]);
        let lists: ArrayRef = Arc::new(builder.finish().slice(1, 3));
        let wanted = sent_type(lists.data_type(), Strings::Plain);
        let plain = converted(&lists, &wanted, usize::MAX).unwrap().unwrap();
        plain.to_data().validate_full().unwrap();
        assert_eq!(*plain.data_type(), wanted);
        let plain = plain.as_list::<i32>();
        assert_eq!(plain.value_offsets(), [0, 3, 3, 4]);
        assert!(plain.is_null(1));
        let strings: Vec<_> = plain.values().as_string::<i32>().iter().collect();
        assert_eq!(strings, [Some("a"), None, Some("longer than twelve bytes"), Some("b")]);
    }

    #[test]
    fn numbers_go_out_as_they_are() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let kept = converted(&numbers, &DataType::Int64, usize::MAX).unwrap().unwrap();
        assert!(Arc::ptr_eq(&numbers, &kept));
    }
}
