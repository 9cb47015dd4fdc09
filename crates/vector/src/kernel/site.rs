//! Call sites: one place of a plan at which a function is called, as one thread runs it.

use super::{Call, Errors, Kernel, Local, Signature};
use crate::context::Context;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::registry::function::Volatility;
use crate::selection::Rows;
use crate::vector::{Dictionary, Form, Vector};
use firn_base::Result;
use firn_base::sync::Arc;

/// A function with the types that it is called with. Each thread has a call site of its own; clones share nothing that calls keep.
pub struct CallSite {
    kernel: Arc<dyn Kernel>,
    signature: Arc<Signature>,
    volatility: Volatility,
    local: Local,
    /// Results for a dictionary that was met before.
    remembered: Option<Remembered>,
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
        CallSite { kernel, signature, volatility, local: Local::default(), remembered: None }
    }

    /// The types of the call.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Calls the function for each selected row of vectors in any form. The result is as long as the chunk; in rows that are not selected
    /// it has any value.
    pub fn vectors(&mut self, context: &Context<'_>, arguments: &[Vector], rows: Rows<'_>) -> Result<Vector> {
        debug_assert!(arguments.iter().all(|argument| argument.len() == rows.length()));
        if rows.count() == 0 {
            return Ok(Vector::null(self.signature.representation, rows.length()));
        }
        if self.volatility != Volatility::Volatile {
            if arguments.iter().all(Vector::is_constant) {
                return self.constant(context, arguments, rows.length());
            }
            if let [argument] = arguments
                && let Form::Codes(_, dictionary) = argument.form()
                && (self.knows(dictionary) || dictionary.values.len() <= rows.count())
            {
                return self.by_dictionary(context, argument, rows);
            }
        }
        let plain: Vec<Vector> = arguments.iter().map(|argument| argument.plain(rows)).collect();
        let mut call = Call::new(context, &self.signature, &mut self.local);
        self.kernel.vectors(&mut call, &plain, rows, None)
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
    fn by_dictionary(&mut self, context: &Context<'_>, argument: &Vector, rows: Rows<'_>) -> Result<Vector> {
        let Form::Codes(codes, dictionary) = argument.form() else { panic!("it has codes") };
        if !self.knows(dictionary) {
            let mut errors = Errors::new();
            let mut call = Call::new(context, &self.signature, &mut self.local);
            let values = std::slice::from_ref(&dictionary.values);
            let all = Rows::all(dictionary.values.len());
            let results = self.kernel.vectors(&mut call, values, all, Some(&mut errors))?;
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
            return Ok(remembered.results.take((0..codes.len()).map(|row| codes.get(row) as usize)));
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
        Ok(builder.finish())
    }
}

impl Clone for CallSite {
    fn clone(&self) -> CallSite {
        CallSite::new(self.kernel.clone(), self.signature.clone(), self.volatility)
    }
}
