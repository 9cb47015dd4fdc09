//! Images of rows that come from another server: looked over before they are read, since reading trusts them.
//!
//! Invariant: [`read_rows`](crate::spill::read_rows) neither panics nor makes invalid vectors of an image that has passed.

use firn_base::{Error, Numeric, Representation, Result, SqlState, Type, TypeId};

/// The most rows of an image: more than a vector ever has.
const MOST_ROWS: usize = 1 << 20;

/// How deep records may be in one another.
const MOST_DEPTH: usize = 64;

/// Looks over the image of rows of columns with these representations. 08P01 if it is none.
pub fn check_rows(representations: &[Representation], image: &[u8]) -> Result<()> {
    let mut image = Image(image);
    match image.rows(representations) {
        Some(()) if image.0.is_empty() => Ok(()),
        _ => Err(Error::new(SqlState::PROTOCOL_VIOLATION, "a message has no rows that could be read")),
    }
}

/// What is left of an image.
struct Image<'i>(&'i [u8]);

impl<'i> Image<'i> {
    fn take(&mut self, length: usize) -> Option<&'i [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn rows(&mut self, representations: &[Representation]) -> Option<()> {
        let rows = Some(self.number()? as usize).filter(|rows| *rows <= MOST_ROWS)?;
        for representation in representations {
            let is_constant = self.flag()?;
            self.vector(*representation, if is_constant { 1 } else { rows }, 0)?;
        }
        Some(())
    }

    fn vector(&mut self, representation: Representation, rows: usize, depth: usize) -> Option<()> {
        if depth > MOST_DEPTH {
            return None;
        }
        if self.flag()? {
            self.take(rows.div_ceil(8))?;
        }
        let width = match representation {
            Representation::Boolean => return self.take(rows.div_ceil(8)).map(drop),
            Representation::Int16 => 2,
            Representation::Int32 | Representation::Oid | Representation::Float32 | Representation::Date => 4,
            Representation::Int64
            | Representation::Float64
            | Representation::Time
            | Representation::Timestamp
            | Representation::TimestampTz => 8,
            Representation::Decimal { precision, .. } => {
                if precision <= 18 {
                    8
                } else {
                    16
                }
            }
            Representation::Interval | Representation::Uuid => 16,
            Representation::Numeric => return self.numerics(rows),
            Representation::Text | Representation::PaddedText | Representation::Bytes => {
                return self.strings(representation, rows);
            }
            Representation::List(element) => return self.lists(*element, rows, depth),
            Representation::Record => return self.records(rows, depth),
        };
        self.take(rows.checked_mul(width)?).map(drop)
    }

    fn numerics(&mut self, rows: usize) -> Option<()> {
        let others = [Numeric::NAN, Numeric::INFINITY, Numeric::NEGATIVE_INFINITY].map(Numeric::to_parts);
        for value in self.take(rows.checked_mul(18)?)?.as_chunks::<18>().0 {
            let (unscaled, scale) = value.split_first_chunk::<16>()?;
            let parts = (i128::from_le_bytes(*unscaled), u16::from_le_bytes(scale.try_into().ok()?));
            if Numeric::new(parts.0, parts.1).is_none() && !others.contains(&parts) {
                return None;
            }
        }
        Some(())
    }

    fn strings(&mut self, representation: Representation, rows: usize) -> Option<()> {
        let lengths = self.take(rows.checked_mul(4)?)?;
        for length in lengths.as_chunks::<4>().0 {
            let bytes = self.take(u32::from_le_bytes(*length) as usize)?;
            if representation != Representation::Bytes {
                str::from_utf8(bytes).ok()?;
            }
        }
        Some(())
    }

    fn lists(&mut self, element: Representation, rows: usize, depth: usize) -> Option<()> {
        let mut all: usize = 0;
        for _ in 0..rows {
            let length = self.number()? as usize;
            all = all.checked_add(length)?;
            let [dimensions] = *self.take(1)? else { return None };
            let mut product: usize = 1;
            for _ in 0..dimensions {
                product = product.checked_mul(self.number()? as usize)?;
                self.number()?;
            }
            if dimensions > 0 && product != length {
                return None;
            }
        }
        let count = self.number()? as usize;
        // Each element takes a bit at least.
        if count != all || count.div_ceil(8) > self.0.len() {
            return None;
        }
        self.vector(element, count, depth + 1)
    }

    fn records(&mut self, rows: usize, depth: usize) -> Option<()> {
        for _ in 0..self.number()? {
            let id = TypeId(self.number()?);
            let modifier = self.number()? as i32;
            self.number()?;
            let ty = Type { modifier, ..Type::new(id) };
            self.vector(ty.representation()?, rows, depth + 1)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::{read_rows, write_rows};
    use firn_base::random::Random;
    use firn_vector::builder::Builder;
    use firn_vector::lists::List;
    use firn_vector::{Data, Datum, Vector};

    /// Columns of all kinds, and the representations of these.
    fn columns() -> (Vec<Representation>, Vec<Vector>) {
        let numbers = Vector::flat(Representation::Int32, Data::Int32(vec![1, 2, 3].into()), None);
        let mut texts = Builder::new(Representation::Text);
        texts.push(Datum::Text("grün"));
        texts.push_null();
        texts.push(Datum::Text("a text that does not fit into a view"));
        let mut arrays = Builder::new(Representation::List(&Representation::Int32));
        arrays.push(Datum::List(List::of(&numbers)));
        arrays.push_null();
        arrays.push(Datum::List(List::of(&numbers)));
        let mut numerics = Builder::new(Representation::Numeric);
        (0..3).for_each(|_| numerics.push(Datum::Numeric(Numeric::NAN)));
        let flags =
            Vector::flat(Representation::Boolean, Data::Boolean(vec![true, false, true].into()), None);
        let vectors = vec![numbers, texts.finish(), arrays.finish(), numerics.finish(), flags];
        (vectors.iter().map(Vector::representation).collect(), vectors)
    }

    #[test]
    fn images_of_rows_pass_and_what_is_made_of_them_by_chance_is_refused_or_can_be_read() {
        let (representations, vectors) = columns();
        let mut image = Vec::new();
        write_rows(&vectors, 3, &mut image);
        check_rows(&representations, &image).unwrap();
        for length in 0..image.len() {
            assert!(check_rows(&representations, &image[..length]).is_err(), "{length}");
        }
        let mut random = Random::seeded(7);
        let mut passed = 0;
        for _ in 0..20_000 {
            let mut other = image.clone();
            for _ in 0..random.uniform(1, 3) {
                let place = random.uniform(0, other.len() as i64 - 1) as usize;
                other[place] = random.uniform(0, 255) as u8;
            }
            if check_rows(&representations, &other).is_ok() {
                passed += 1;
                let (read, rows) = read_rows(&representations, &mut &other[..]);
                // Every value can be looked at.
                read.iter()
                    .for_each(|vector| (0..rows).for_each(|row| drop(format!("{:?}", vector.datum(row)))));
            }
        }
        assert!(passed > 1000, "{passed} of the images are some");
    }
}
