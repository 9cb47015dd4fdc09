//! Call sites: one place of a plan at which a function is called, as one thread runs it.
//!
//! A chunk whose results are too wide for one vector is evaluated in parts: each of fewer rows than the one that was too wide. Rows
//! may so be evaluated again. For these a volatile function is not called again: it has one value for a row, and may have had an effect.

use super::{Call, Errors, Kernel, Local, MOST_BYTES, Signature};
use crate::context::Context;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::registry::function::Volatility;
use crate::selection::Rows;
use crate::vector::{Dictionary, Form, Vector};
use firn_base::sync::Arc;
use firn_base::{Error, Result};

/// A function with the types that it is called with. Each thread has a call site of its own; clones share nothing that calls keep.
pub struct CallSite {
    kernel: Arc<dyn Kernel>,
    signature: Arc<Signature>,
    volatility: Volatility,
    local: Local,
    /// Results for a dictionary that was met before.
    remembered: Option<Remembered>,
    /// Of a volatile function: the chunk that it was called for last, and its results in parts of that, each with the first row.
    drawn: (u64, Vec<(usize, Vector)>),
}

/// A part of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The number of the chunk: each has another one.
    pub chunk: u64,
    /// The first row of the part in the chunk.
    pub from: usize,
    /// How many bytes the results of a vector may take before the last one.
    pub most_bytes: usize,
}

/// The results of a function of one argument for all values of a dictionary.
struct Remembered {
    dictionary: u64,
    results: Vector,
    errors: Errors,
}

impl CallSite {
    /// A call of a kernel that accepts the signature.
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        signature: Arc<Signature>,
        volatility: Volatility,
    ) -> CallSite {
        assert!(
            kernel.accepts(&signature.representations, signature.representation),
            "the kernel takes no {:?} or gives no {:?}",
            signature.representations,
            signature.representation,
        );
        let drawn = (0, Vec::new());
        CallSite { kernel, signature, volatility, local: Local::default(), remembered: None, drawn }
    }

    /// The types of the call.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Calls the function for each selected row of vectors in any form. The result is as long as the chunk; in rows that are not selected
    /// it has any value.
    pub fn vectors(&mut self, context: &Context<'_>, arguments: &[Vector], rows: Rows<'_>) -> Result<Vector> {
        let called = self.call(context, arguments, rows, MOST_BYTES)?;
        called.map_err(TooWide::into_error)
    }

    /// As [`CallSite::vectors`], for a part of a chunk. `None` if the results are too wide: then it is to be asked for smaller parts, from
    /// the same row on.
    pub fn vectors_of_part(
        &mut self,
        context: &Context<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
        part: Part,
    ) -> Result<Option<Vector>> {
        if self.volatility != Volatility::Volatile {
            return Ok(self.call(context, arguments, rows, part.most_bytes)?.ok());
        }
        let (from, to) = (part.from, part.from + rows.length());
        if self.drawn.0 != part.chunk {
            self.drawn = (part.chunk, Vec::new());
        }
        let has = |(first, drawn): &&(usize, Vector)| *first <= from && to <= first + drawn.len();
        if let Some((first, drawn)) = self.drawn.1.iter().find(has) {
            return Ok(Some(drawn.slice(from - first, rows.length())));
        }
        let drawn = self.vectors(context, arguments, rows)?;
        self.drawn.1.push((from, drawn.clone()));
        Ok(Some(drawn))
    }

    fn call(
        &mut self,
        context: &Context<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
        most_bytes: usize,
    ) -> Result<std::result::Result<Vector, TooWide>> {
        debug_assert!(arguments.iter().all(|argument| argument.len() == rows.length()));
        if rows.count() == 0 {
            return Ok(Ok(Vector::null(self.signature.representation, rows.length())));
        }
        if self.volatility != Volatility::Volatile {
            if arguments.iter().all(Vector::is_constant) {
                return self.constant(context, arguments, rows.length()).map(Ok);
            }
            if let [argument] = arguments
                && let Form::Codes(_, dictionary) = argument.form()
                && (self.knows(dictionary) || dictionary.values.len() <= rows.count())
            {
                return self.by_dictionary(context, argument, rows, most_bytes);
            }
        }
        let plain: Vec<Vector> = arguments.iter().map(|argument| argument.plain(rows)).collect();
        let mut call = Call { most_bytes, ..Call::new(context, &self.signature, &mut self.local) };
        let result = self.kernel.vectors(&mut call, &plain, rows, None);
        TooWide::found(&call, result)
    }

    /// Calls the function for the values of one row.
    pub fn cells(&mut self, context: &Context<'_>, arguments: &[Datum<'_>], out: &mut Slot) -> Result<()> {
        let mut call = Call::new(context, &self.signature, &mut self.local);
        self.kernel.cells(&mut call, arguments, out)
    }

    /// Calls it once for all rows, which have the same arguments.
    fn constant(&mut self, context: &Context<'_>, arguments: &[Vector], length: usize) -> Result<Vector> {
        let one: Vec<Vector> = arguments.iter().map(|argument| argument.slice(0, 1)).collect();
        let mut call = Call::new(context, &self.signature, &mut self.local);
        let result = self.kernel.vectors(&mut call, &one, Rows::all(1), None)?;
        Ok(match result.is_null(0) {
            true => Vector::null(result.representation(), length),
            false => {
                let data = result.data().expect("kernels give flat vectors").clone();
                Vector::constant(result.representation(), data, length)
            }
        })
    }

    fn knows(&self, dictionary: &Dictionary) -> bool {
        self.remembered.as_ref().is_some_and(|remembered| remembered.dictionary == dictionary.id)
    }

    /// Calls it once for each value of a dictionary, and not at all if it has met the dictionary before. Only errors of values that a
    /// selected row has are raised. (A NULL among the rows is not in the dictionary.)
    fn by_dictionary(
        &mut self,
        context: &Context<'_>,
        argument: &Vector,
        rows: Rows<'_>,
        most_bytes: usize,
    ) -> Result<std::result::Result<Vector, TooWide>> {
        let Form::Codes(codes, dictionary) = argument.form() else { panic!("it has codes") };
        if !self.knows(dictionary) {
            let mut errors = Errors::new();
            let mut call = Call { most_bytes, ..Call::new(context, &self.signature, &mut self.local) };
            let values = std::slice::from_ref(&dictionary.values);
            let all = Rows::all(dictionary.values.len());
            let results = self.kernel.vectors(&mut call, values, all, Some(&mut errors));
            let results = match TooWide::found(&call, results)? {
                Ok(results) => results,
                Err(too_wide) => return Ok(Err(too_wide)),
            };
            self.remembered = Some(Remembered { dictionary: dictionary.id, results, errors });
        }
        let remembered = self.remembered.as_ref().expect("it has just been made");
        let is_asked = |row: &usize| !argument.is_null(*row);
        if !remembered.errors.is_empty() {
            rows.try_each(|row| {
                match is_asked(&row).then(|| remembered.errors.get(codes.get(row) as usize)) {
                    Some(Some(error)) => Err(error.clone()),
                    _ => Ok(()),
                }
            })?;
        }
        if argument.has_no_null() {
            return Ok(Ok(remembered.results.take((0..codes.len()).map(|row| codes.get(row) as usize))));
        }
        // What a kernel makes of NULL is asked for once.
        let null = [Vector::null(argument.representation(), 1)];
        let mut call = Call::new(context, &self.signature, &mut self.local);
        let of_null = self.kernel.vectors(&mut call, &null, Rows::all(1), None)?;
        let mut builder = crate::builder::Builder::new(self.signature.representation);
        for row in 0..codes.len() {
            builder.push(match argument.is_null(row) {
                true => of_null.datum(0),
                false => remembered.results.datum(codes.get(row) as usize),
            });
        }
        Ok(Ok(builder.finish()))
    }
}

/// That the results of a vector are too wide, as an error for those who cannot ask for fewer rows.
struct TooWide(Error);

impl TooWide {
    fn found(call: &Call<'_>, result: Result<Vector>) -> Result<std::result::Result<Vector, TooWide>> {
        match result {
            Err(error) if call.is_too_wide => Ok(Err(TooWide(error))),
            result => result.map(Ok),
        }
    }

    fn into_error(self) -> Error {
        self.0
    }
}

impl Clone for CallSite {
    fn clone(&self) -> CallSite {
        CallSite::new(self.kernel.clone(), self.signature.clone(), self.volatility)
    }
}
