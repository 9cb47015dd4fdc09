//! The merge of dictionaries (Krueger et al., "Fast Updates on Read-Optimized Databases Using Multi-Core CPUs", PVLDB 5, 2011, §7):
//! the costs of its steps, compared with the paper's naive algorithm (§5.1 and 5.2) and with the bandwidth of
//! memory (§7.4). And the cost of reading a slot of encoded columns (Funke, Kemper and Neumann 2012, §5.6.2).
//!
//! Cycles are elapsed time times the frequency, which is measured by a chain of multiplications that take three cycles each.
//! They are given per tuple of main and delta together, whatever the number of threads, as in the paper.

use firn_base::clock::now;
use firn_base::random::Random;
use firn_base::{Result, SqlType, thread};
use firn_storage::encoding::merge::DeltaDictionary;
use firn_storage::encoding::{
    Code, Codes, Condition, Dictionary, EncodedColumn, Encoding, Kept, Merge, Piece, Source,
};
use std::fmt;
use std::hint::black_box;
use std::ops::Bound;
use std::time::Duration;

/// Slots of a block: 1 MiB of 8-byte values.
const SLOTS: usize = 1 << 17;

/// What to merge.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Tuples of main.
    pub main: usize,
    /// Tuples of delta.
    pub delta: usize,
    /// Threads.
    pub threads: usize,
    /// How often; medians are reported.
    pub runs: usize,
}

/// The type of the merged values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 8-byte integers
    Words,
    /// Strings of 24 bytes, the first 8 of which they share
    Strings,
}

/// The capabilities of a machine with the threads that merge.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Cycles a second.
    pub frequency: f64,
    /// Bytes a second that are read one after another.
    pub read: f64,
    /// Bytes a second that are written one after another.
    pub write: f64,
}

/// Medians of the steps of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Delta's dictionary.
    pub collect: Duration,
    /// The merged dictionary, and translations.
    pub merge: Duration,
    /// New codes.
    pub encode: Duration,
}

impl Steps {
    fn total(&self) -> Duration {
        self.collect + self.merge + self.encode
    }
}

/// One merge, several times.
#[derive(Clone, Debug)]
pub struct Report {
    kind: Kind,
    percent: f64,
    options: Options,
    machine: Machine,
    /// The numbers of values of main's, delta's and the merged dictionary.
    values: [usize; 3],
    ours: Steps,
    naive: Steps,
    /// The time of step 2 if it only moved bytes.
    model: Duration,
    checksum: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tuples = (self.options.main + self.options.delta) as f64;
        let cycles = |time: Duration| time.as_secs_f64() * self.machine.frequency / tuples;
        let kind = match self.kind {
            Kind::Words => "8-byte values",
            Kind::Strings => "strings of 24 bytes",
        };
        let [main, delta, merged] = self.values;
        writeln!(
            f,
            "{} % distinct {kind}: {main} values and {delta} are {merged}; cycles per tuple",
            self.percent
        )?;
        writeln!(f, "{:>20}{:>12}{:>12}{:>12}{:>12}", "", "step 1a", "step 1b", "step 2", "all")?;
        for (name, steps) in [("merge", self.ours), ("naive", self.naive)] {
            let [a, b, c] = [steps.collect, steps.merge, steps.encode].map(cycles);
            writeln!(f, "{name:>20}{a:>12.2}{b:>12.2}{c:>12.2}{:>12.2}", cycles(steps.total()))?;
        }
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        writeln!(
            f,
            "{:>20}{:>36.2}{:>12.1}",
            "naive / merge",
            ratio(self.naive.encode, self.ours.encode),
            ratio(self.naive.total(), self.ours.total())
        )?;
        writeln!(f, "{:>20}{:>36.2}", "memory model", cycles(self.model))?;
        writeln!(f, "{:>20}{:>36.2}", "step 2 / model", ratio(self.ours.encode, self.model))?;
        write!(f, "{:>20}{:>36x}", "checksum", self.checksum)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} GHz; {:.1} GB/s read and {:.1} GB/s written in order",
            self.frequency / 1e9,
            self.read / 1e9,
            self.write / 1e9
        )
    }
}

fn timed<R>(work: impl FnOnce() -> R) -> (Duration, R) {
    let start = now();
    let result = work();
    (start.elapsed(), result)
}

fn median_of(runs: usize, mut work: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..runs).map(|_| work()).collect();
    super::median(&mut times)
}

impl Machine {
    /// Measures a machine with this number of threads and bytes.
    pub fn measure(threads: usize, bytes: usize, runs: usize) -> Result<Machine> {
        const CHAIN: u64 = 500_000;
        // The fastest one shows the frequency; others were interrupted.
        let chain = (0..200).map(|_| {
            let (time, product) = timed(|| (0..CHAIN).fold(black_box(3), |number, _| link(number)));
            black_box(product);
            time
        });
        let chain = chain.min().expect("some");
        let words = bytes / 8 / threads;
        let parts: Vec<firn_base::sync::Mutex<Vec<u64>>> =
            (0..threads).map(|_| firn_base::sync::Mutex::new(vec![1; words])).collect();
        let moved = (words * threads * 8) as f64;
        let read = median_of(runs, || {
            let (time, sums) = timed(|| {
                thread::for_each("bench", threads, &parts, |part| {
                    Ok(part.lock().iter().fold(0u64, |sum, word| sum.wrapping_add(*word)))
                })
            });
            black_box(sums.expect("nothing fails"));
            time
        });
        let mut value = 0;
        let write = median_of(runs, || {
            value += 1;
            timed(|| {
                thread::for_each("bench", threads, &parts, |part| {
                    part.lock().fill(black_box(value));
                    Ok(())
                })
            })
            .0
        });
        Ok(Machine {
            frequency: 4.0 * CHAIN as f64 / chain.as_secs_f64(),
            read: moved / read.as_secs_f64(),
            write: moved / write.as_secs_f64(),
        })
    }

    /// The time to read and write `tuples` codes in order, and to read as many places of a table of
    /// `entries` at random. It is the sum of the paper's equations 12 to 14, each at its measured speed. For
    /// a table that fits in a cache, the last is the time of instructions.
    fn step_two(
        &self,
        threads: usize,
        tuples: usize,
        widths: (usize, usize),
        table: (usize, usize),
        runs: usize,
    ) -> Duration {
        let (entries, entry_bytes) = table;
        let random = match entry_bytes {
            1 => random_reads(threads, tuples, &vec![1u8; entries], runs),
            2 => random_reads(threads, tuples, &vec![1u16; entries], runs),
            _ => random_reads(threads, tuples, &vec![1u32; entries], runs),
        };
        let (read, written) = ((tuples * widths.0) as f64, (tuples * widths.1) as f64);
        random + Duration::from_secs_f64(read / self.read + written / self.write)
    }
}

/// A multiplication of three cycles and an exclusive or of one, on which the next ones depend.
#[inline(always)]
fn link(number: u64) -> u64 {
    (number ^ 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn random_reads<T: Copy + Into<u64> + Sync>(
    threads: usize,
    reads: usize,
    table: &[T],
    runs: usize,
) -> Duration {
    let shares: Vec<u64> = (0..threads as u64).collect();
    median_of(runs, || {
        let (time, sums) = timed(|| {
            thread::for_each("bench", threads, &shares, |share| {
                Ok((0..(reads / threads) as u64).fold(0u64, |sum, at| {
                    sum.wrapping_add(table[place(at ^ *share << 40, table.len())].into())
                }))
            })
        });
        black_box(sums.expect("nothing fails"));
        time
    })
}

/// A position below `places` that is independent of those of other numbers.
#[inline(always)]
fn place(number: u64, places: usize) -> usize {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let low = (mixed ^ mixed >> 32) & 0xffff_ffff;
    ((low * places as u64) >> 32) as usize
}

/// Values of one block.
enum Block {
    Words(Vec<i64>),
    Strings(Vec<String>),
}

impl Block {
    fn of(kind: Kind, numbers: &[u64]) -> Block {
        // Spread like real values, whatever their numbers: a step of a generator.
        let word = |number: &u64| {
            let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29) as i64
        };
        match kind {
            Kind::Words => Block::Words(numbers.iter().map(word).collect()),
            Kind::Strings => Block::Strings(
                numbers.iter().map(|number| format!("Customer{:016x}", word(number))).collect(),
            ),
        }
    }
}

fn with_pieces<R>(blocks: &[Block], work: impl FnOnce(&[Piece<'_>]) -> R) -> R {
    let strings: Vec<Vec<&[u8]>> = blocks
        .iter()
        .map(|block| match block {
            Block::Words(_) => Vec::new(),
            Block::Strings(strings) => strings.iter().map(|string| string.as_bytes()).collect(),
        })
        .collect();
    let pieces: Vec<Piece<'_>> = blocks
        .iter()
        .zip(&strings)
        .map(|(block, strings)| {
            let values = match block {
                Block::Words(words) => Source::Eight(words),
                Block::Strings(_) => Source::Strings(strings),
            };
            Piece { values, nulls: None }
        })
        .collect();
    work(&pieces)
}

/// Merges a delta into a main, both with `percent` distinct values in a hundred tuples. Half of the delta's values are new.
pub fn run(kind: Kind, percent: f64, options: Options, machine: Machine) -> Result<Report> {
    let Options { main, delta, threads, runs } = options;
    let ty = match kind {
        Kind::Words => SqlType::BigInt,
        Kind::Strings => SqlType::Text,
    };
    let random = &mut Random::seeded(7);
    let distinct = |tuples: usize| ((tuples as f64 * percent / 100.0) as u64).max(1);
    let (main_values, delta_values) = (distinct(main), distinct(delta));
    // Each at least once where there are enough tuples, in random order.
    let mut shuffled = |tuples: usize, values: u64| {
        let mut numbers: Vec<u64> = (0..tuples as u64).map(|at| at % values).collect();
        for at in (1..tuples).rev() {
            numbers.swap(at, random.uniform(0, at as i64) as usize);
        }
        numbers
    };
    let cut =
        |numbers: Vec<u64>| numbers.chunks(SLOTS).map(|chunk| Block::of(kind, chunk)).collect::<Vec<_>>();
    let main_blocks = cut(shuffled(main, main_values));
    let old = delta_values / 2;
    let number = |value: u64| if value < old { value * 3 % main_values } else { main_values + value };
    let delta_blocks = cut(shuffled(delta, delta_values).into_iter().map(number).collect());

    let first = with_pieces(&main_blocks, |pieces| DeltaDictionary::build(ty.into(), pieces, threads))
        .expect("few enough")
        .merge(None, threads)
        .expect("few enough");
    let dictionary = first.dictionary().clone();
    let columns: Vec<EncodedColumn> =
        (0..main_blocks.len()).map(|number| first.delta(number, false)).collect();
    drop((main_blocks, first));

    with_pieces(&delta_blocks, |pieces| {
        let mut times = [const { Vec::new() }; 6];
        let mut checksums = Vec::new();
        let mut values = [dictionary.len(), 0, 0];
        let mut widths = (0, 0);
        for _ in 0..runs {
            let (time, collected) =
                timed(|| DeltaDictionary::build(ty.into(), pieces, threads).expect("few enough"));
            times[0].push(time);
            values[1] = collected.len();
            let (time, merge) = timed(|| collected.merge(Some(&dictionary), threads).expect("few enough"));
            times[1].push(time);
            values[2] = merge.dictionary().len();
            let (time, encoded) = timed(|| encode(&merge, &columns, pieces.len(), threads));
            let encoded = encoded?;
            times[2].push(time);
            let checksum = checksum(encoded.iter().map(|column| column.codes().expect("codes").0));
            checksums.push(checksum);
            let width = |column: &EncodedColumn| column.codes().expect("codes").0.width().bytes();
            widths = (width(&columns[0]), width(&encoded[0]));
            drop((merge, encoded));

            // The dictionary that delta's tree provides in the paper is built here.
            let own = DeltaDictionary::build(ty.into(), pieces, threads).expect("few enough");
            let own = own.merge(None, threads).expect("few enough").dictionary().clone();
            times[3].push(times[0][times[0].len() - 1]);
            let (merging, encoding, codes) = naive(&dictionary, &own, &columns, pieces, threads)?;
            times[4].push(merging);
            times[5].push(encoding);
            assert_eq!(checksum, self::checksum(codes.iter()), "both ways make the same codes");
        }
        assert!(checksums.windows(2).all(|both| both[0] == both[1]));
        let [a, b, c, d, e, g] = times.map(|mut times| super::median(&mut times));
        let table = (values[0], widths.1);
        Ok(Report {
            kind,
            percent,
            options,
            machine,
            values,
            ours: Steps { collect: a, merge: b, encode: c },
            naive: Steps { collect: d, merge: e, encode: g },
            model: machine.step_two(threads, main + delta, widths, table, runs),
            checksum: checksums[0],
        })
    })
}

/// Step 2, over the blocks of main and of delta.
fn encode(
    merge: &Merge,
    columns: &[EncodedColumn],
    delta: usize,
    threads: usize,
) -> Result<Vec<EncodedColumn>> {
    let blocks: Vec<usize> = (0..columns.len() + delta).collect();
    thread::for_each("merge", threads, &blocks, |block| {
        Ok(match columns.get(*block) {
            Some(column) => merge.main(column),
            None => merge.delta(*block - columns.len(), false),
        })
    })
}

fn checksum<'a>(codes: impl Iterator<Item = &'a Codes>) -> u64 {
    let add = |sum: u64, code: u64| sum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ code;
    codes.fold(0, |sum, codes| (0..codes.len()).fold(sum, |sum, at| add(sum, codes.number(at))))
}

/// The paper's §5.1 and 5.2. The dictionaries are merged without translations. Then the value of every tuple of main is
/// looked up, and the value of every tuple is searched in the merged dictionary by a binary search.
fn naive(
    main: &Dictionary,
    delta: &Dictionary,
    columns: &[EncodedColumn],
    pieces: &[Piece<'_>],
    threads: usize,
) -> Result<(Duration, Duration, Vec<Codes>)> {
    match (main, delta) {
        (Dictionary::Eight(main), Dictionary::Eight(delta)) => {
            let (merging, merged) =
                timed(|| merged(main.ordinals().iter().copied(), delta.ordinals().iter().copied()));
            let words = |piece: &Piece<'_>| match piece.values {
                Source::Eight(words) => words.to_vec(),
                _ => unreachable!("8-byte values"),
            };
            let pieces: Vec<Vec<i64>> = pieces.iter().map(words).collect();
            let (encoding, codes) =
                timed(|| searched(columns, &pieces, |code| main.ordinals()[code], &merged, threads));
            Ok((merging, encoding, codes?))
        }
        (Dictionary::Strings(main), Dictionary::Strings(delta)) => {
            let main: Vec<&[u8]> = (0..main.len()).map(|code| main.get(code)).collect();
            let delta = (0..delta.len()).map(|code| delta.get(code));
            let (merging, merged) = timed(|| merged(main.iter().copied(), delta));
            let strings = pieces.iter().map(|piece| match piece.values {
                Source::Strings(strings) => strings.to_vec(),
                _ => unreachable!("strings"),
            });
            let pieces: Vec<Vec<&[u8]>> = strings.collect();
            let (encoding, codes) = timed(|| searched(columns, &pieces, |code| main[code], &merged, threads));
            Ok((merging, encoding, codes?))
        }
        _ => unreachable!("words or strings"),
    }
}

/// Both in order, each value once.
fn merged<T: Ord + Copy>(main: impl Iterator<Item = T>, delta: impl Iterator<Item = T>) -> Vec<T> {
    let (mut main, mut delta) = (main.peekable(), delta.peekable());
    let mut merged = Vec::new();
    loop {
        let next = match (main.peek(), delta.peek()) {
            (Some(a), Some(b)) if a == b => {
                delta.next();
                main.next()
            }
            (Some(a), Some(b)) if a < b => main.next(),
            (_, Some(_)) => delta.next(),
            (Some(_), None) => main.next(),
            (None, None) => return merged,
        };
        merged.extend(next);
    }
}

fn searched<T: Ord + Copy + Sync>(
    columns: &[EncodedColumn],
    pieces: &[Vec<T>],
    value: impl Fn(usize) -> T + Sync,
    merged: &[T],
    threads: usize,
) -> Result<Vec<Codes>> {
    let blocks: Vec<usize> = (0..columns.len() + pieces.len()).collect();
    let highest = merged.len() as u64 - 1;
    let search = |value: T| merged.binary_search(&value).expect("all values are merged") as u64;
    thread::for_each("naive", threads, &blocks, |block| {
        let Some(column) = columns.get(*block) else {
            let piece = &pieces[*block - columns.len()];
            return Ok(Codes::collect(highest, piece.iter().map(|value| search(*value))));
        };
        fn of<C: Code>(codes: &[C], highest: u64, search: impl Fn(usize) -> u64) -> Codes {
            Codes::collect(highest, codes.iter().map(|code| search(code.number() as usize)))
        }
        let search = |code| search(value(code));
        Ok(match column.codes().expect("codes").0 {
            Codes::One(codes) => of(codes, highest, search),
            Codes::Two(codes) => of(codes, highest, search),
            Codes::Four(codes) => of(codes, highest, search),
            Codes::Eight(codes) => of(codes, highest, search),
        })
    })
}

/// The costs of reading, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// The encoding.
    pub name: &'static str,
    /// Bytes of a value, with its share of the dictionary.
    pub bytes: f64,
    /// The cost of a slot at random.
    pub slot: f64,
    /// The cost of a slot in order, decoded with others.
    pub decoded: f64,
    /// The cost of a slot in order, compared with two bounds.
    pub selected: f64,
}

/// Reads a column of 8-byte values in every encoding: values in runs of ten on average.
pub fn reads(slots: usize, runs: usize, machine: Machine) -> Result<Vec<Reads>> {
    let random = &mut Random::seeded(9);
    let mut next = 0;
    let mut blocks = Vec::new();
    let mut left = slots;
    while left > 0 {
        let count = left.min(SLOTS);
        let mut words: Vec<i64> = Vec::with_capacity(count);
        while words.len() < count {
            // One of 50,000 values, near each other.
            next = (next + random.uniform(1, 49_999)) % 50_000;
            let length = random.uniform(1, 19).min((count - words.len()) as i64) as usize;
            words.extend(std::iter::repeat_n((1 << 40) + next, length));
        }
        blocks.push(words);
        left -= count;
    }
    let pieces: Vec<Piece<'_>> =
        blocks.iter().map(|words| Piece { values: Source::Eight(words), nulls: None }).collect();
    let ty = SqlType::BigInt;
    let merge = DeltaDictionary::build(ty.into(), &pieces, 1)
        .expect("few enough")
        .merge(None, 1)
        .expect("few enough");
    let mut results = Vec::new();
    let mut sums = Vec::new();
    for (name, runs_of, values) in [
        ("plain", false, Kept::Plain),
        ("offsets", false, Kept::Offsets),
        ("codes", false, Kept::Codes),
        ("runs", true, Kept::Plain),
        ("runs of offsets", true, Kept::Offsets),
        ("runs of codes", true, Kept::Codes),
    ] {
        let encoding = Encoding { runs: runs_of, values };
        let columns: Vec<EncodedColumn> = pieces
            .iter()
            .enumerate()
            .map(|(number, piece)| match values {
                Kept::Codes => merge.delta(number, runs_of),
                _ => EncodedColumn::encode(ty.into(), *piece, encoding).expect("close enough"),
            })
            .collect();
        let dictionary = if values == Kept::Codes { merge.dictionary().bytes() } else { 0 };
        let bytes = columns.iter().map(EncodedColumn::bytes).sum::<usize>() + dictionary;
        let mut sum = 0;
        let slot = median_of(runs, || {
            let (time, total) = timed(|| {
                (0..slots as u64).map(|at| place(at, slots)).fold(0i64, |sum, place| {
                    sum.wrapping_add(columns[place / SLOTS].word::<i64>(place % SLOTS))
                })
            });
            sum = total;
            time
        });
        let mut out = Vec::with_capacity(SLOTS);
        let decoded = median_of(runs, || {
            timed(|| {
                for column in &columns {
                    out.clear();
                    column.decode_words::<i64>(0..column.slots(), &mut out);
                    black_box(&out);
                }
            })
            .0
        });
        let bound = |number: i64| Bound::Included(firn_base::Cell::i64((1 << 40) + number));
        let condition = Condition::range(bound(10_000), bound(20_000));
        let mut taken = 0;
        let selected = median_of(runs, || {
            let (time, count) = timed(|| {
                let select =
                    |column: &EncodedColumn| column.select(0..column.slots(), &condition).expect("decidable");
                columns.iter().map(|column| select(column).count_set_bits()).sum::<usize>()
            });
            taken = count;
            time
        });
        sums.push((sum, taken));
        let cycles = |time: Duration| time.as_secs_f64() * machine.frequency / slots as f64;
        results.push(Reads {
            name,
            bytes: bytes as f64 / slots as f64,
            slot: cycles(slot),
            decoded: cycles(decoded),
            selected: cycles(selected),
        });
    }
    assert!(sums.windows(2).all(|both| both[0] == both[1]), "every encoding reads the same");
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_merging_make_the_same_codes() {
        let machine = Machine::measure(2, 1 << 16, 1).unwrap();
        let options = Options { main: 3000, delta: 500, threads: 2, runs: 2 };
        for kind in [Kind::Words, Kind::Strings] {
            for percent in [1.0, 10.0, 100.0] {
                let report = run(kind, percent, options, machine).unwrap();
                let [main, delta, merged] = report.values;
                assert_eq!((main, delta), ((30.0 * percent) as usize, (5.0 * percent) as usize));
                assert!(merged > main && merged < main + delta, "half of delta's values are new");
                assert!(report.to_string().contains("checksum"));
            }
        }
    }

    #[test]
    fn every_encoding_reads_the_same() {
        let machine = Machine::measure(1, 1 << 16, 1).unwrap();
        let reads = reads(10_000, 1, machine).unwrap();
        assert_eq!(reads.len(), 6);
        assert!(reads[0].bytes == 8.0 && reads[2].bytes > 2.0);
    }
}
