//! What the terminals enter: random inputs as TPC-C's clauses 2.4.1 to 2.8.1 prescribe them, the
//! standard mix of 45 : 43 : 4 : 4 : 4, and the non-uniform random numbers for both the inputs
//! and the initial population.

use super::{DISTRICTS, Kind, Scale};
use firn_base::random::Random;

/// The most lines of an order.
pub const MAX_LINES: usize = 15;

/// An item number that no item has: the 1 % of orders that end in a rollback ask for it.
pub const UNUSED_ITEM: i32 = i32::MAX;

/// The constants C of NURand (clause 2.1.6). They depend on the run only, not on the load, except for
/// the last names, where the difference of the two must be in 65..=119 and not 96 or 112.
#[derive(Clone, Copy, Debug)]
pub struct NuRandConstants {
    pub(super) last_name: i64,
    customer: i64,
    item: i64,
}

impl NuRandConstants {
    /// For the initial population.
    pub const LOAD: NuRandConstants = NuRandConstants { last_name: 157, customer: 91, item: 4711 };
    /// For runs.
    pub const RUN: NuRandConstants = NuRandConstants { last_name: 243, customer: 259, item: 7911 };
}

const _: () = {
    let delta = NuRandConstants::RUN.last_name - NuRandConstants::LOAD.last_name;
    assert!(delta >= 65 && delta <= 119 && delta != 96 && delta != 112);
    assert!(NuRandConstants::RUN.last_name <= 255);
};

/// The non-uniform random number of clause 2.1.6, in `low..=high`.
#[inline]
pub fn nurand(random: &mut Random, a: i64, low: i64, high: i64, c: i64) -> i32 {
    let mixed = random.uniform(0, a) | random.uniform(low, high);
    ((mixed + c) % (high - low + 1) + low) as i32
}

/// A customer's last name: three syllables (clause 4.3.2.3), in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastName {
    bytes: [u8; 15],
    length: u8,
}

impl LastName {
    /// The name of a number from 0 to 999.
    pub fn of(number: i32) -> LastName {
        const SYLLABLES: [&str; 10] =
            ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
        debug_assert!((0..1000).contains(&number));
        let mut name = LastName { bytes: [0; 15], length: 0 };
        for digit in [number / 100, number / 10 % 10, number % 10] {
            let syllable = SYLLABLES[digit as usize].as_bytes();
            let start = usize::from(name.length);
            name.bytes[start..start + syllable.len()].copy_from_slice(syllable);
            name.length += syllable.len() as u8;
        }
        name
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("syllables are ASCII")
    }
}

/// How a customer is named: by number, or, six times in ten, by last name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CustomerChoice {
    /// By `c_id`.
    Id(i32),
    /// By last name: of the customers with that name, the middle one by first name.
    LastName(LastName),
}

/// One line of a new order.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct LineInput {
    /// The item, or [`UNUSED_ITEM`].
    pub item: i32,
    /// The warehouse that supplies it.
    pub supply_warehouse: i32,
    /// How many.
    pub quantity: i32,
}

/// What a terminal enters for a new order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NewOrderInput {
    /// The terminal's warehouse.
    pub warehouse: i32,
    /// The customer's district.
    pub district: i32,
    /// The customer.
    pub customer: i32,
    lines: [LineInput; MAX_LINES],
    line_count: usize,
}

impl NewOrderInput {
    /// The lines.
    pub fn lines(&self) -> &[LineInput] {
        &self.lines[..self.line_count]
    }

    /// Whether the terminal's warehouse supplies every line.
    pub fn all_local(&self) -> bool {
        self.lines().iter().all(|line| line.supply_warehouse == self.warehouse)
    }
}

/// What a terminal enters for a payment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaymentInput {
    /// The terminal's warehouse.
    pub warehouse: i32,
    /// The district that takes the money.
    pub district: i32,
    /// The customer's warehouse: another one in 15 % of payments.
    pub customer_warehouse: i32,
    /// The customer's district.
    pub customer_district: i32,
    /// The customer.
    pub customer: CustomerChoice,
    /// How much, in cents.
    pub amount: i64,
}

/// What a terminal enters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Input {
    /// An order.
    NewOrder(NewOrderInput),
    /// A payment.
    Payment(PaymentInput),
    /// A query for the last order of a customer.
    OrderStatus {
        /// The customer's warehouse.
        warehouse: i32,
        /// The customer's district.
        district: i32,
        /// The customer.
        customer: CustomerChoice,
    },
    /// A delivery.
    Delivery {
        /// The warehouse.
        warehouse: i32,
        /// The carrier.
        carrier: i32,
    },
    /// A query for items that run low.
    StockLevel {
        /// The warehouse.
        warehouse: i32,
        /// The district.
        district: i32,
        /// The quantity below which an item runs low.
        threshold: i32,
    },
}

impl Input {
    /// Which of the five transactions it is for.
    pub fn kind(&self) -> Kind {
        match self {
            Input::NewOrder(_) => Kind::NewOrder,
            Input::Payment(_) => Kind::Payment,
            Input::OrderStatus { .. } => Kind::OrderStatus,
            Input::Delivery { .. } => Kind::Delivery,
            Input::StockLevel { .. } => Kind::StockLevel,
        }
    }

    /// Appends what a log of procedures has of it: which of them it is, and its parameters. Nothing if it changes no rows.
    pub fn encode(&self, log: &mut Vec<u8>) {
        let put = |log: &mut Vec<u8>, numbers: &[i32]| {
            numbers.iter().for_each(|number| log.extend(number.to_le_bytes()));
        };
        match self {
            Input::NewOrder(order) => {
                log.extend([Kind::NewOrder as u8, order.line_count as u8]);
                put(log, &[order.warehouse, order.district, order.customer]);
                for line in order.lines() {
                    put(log, &[line.item, line.supply_warehouse, line.quantity]);
                }
            }
            Input::Payment(payment) => {
                log.push(Kind::Payment as u8);
                put(log, &[payment.warehouse, payment.district, payment.customer_warehouse]);
                put(log, &[payment.customer_district, payment.amount as i32]);
                match payment.customer {
                    CustomerChoice::Id(id) => {
                        log.push(0);
                        put(log, &[id]);
                    }
                    CustomerChoice::LastName(name) => {
                        log.push(name.length);
                        log.extend_from_slice(name.as_str().as_bytes());
                    }
                }
            }
            Input::Delivery { warehouse, carrier } => {
                log.push(Kind::Delivery as u8);
                put(log, &[*warehouse, *carrier]);
            }
            Input::OrderStatus { .. } | Input::StockLevel { .. } => {}
        }
    }

    /// Takes the first one from a log, which was [encoded](Input::encode) there. `None` at the end.
    pub fn decode(log: &mut &[u8]) -> Option<Input> {
        let kind = byte(log)?;
        Some(if kind == Kind::NewOrder as u8 {
            let line_count = usize::from(byte(log)?);
            let [warehouse, district, customer] = numbers(log)?;
            let mut lines = [LineInput { item: 0, supply_warehouse: 0, quantity: 0 }; MAX_LINES];
            for line in &mut lines[..line_count] {
                let [item, supply_warehouse, quantity] = numbers(log)?;
                *line = LineInput { item, supply_warehouse, quantity };
            }
            Input::NewOrder(NewOrderInput { warehouse, district, customer, lines, line_count })
        } else if kind == Kind::Payment as u8 {
            let [warehouse, district, customer_warehouse, customer_district, amount] = numbers(log)?;
            let customer = match byte(log)? {
                0 => CustomerChoice::Id(numbers::<1>(log)?[0]),
                length => {
                    let (name, rest) = log.split_at_checked(usize::from(length))?;
                    *log = rest;
                    let mut bytes = [0; 15];
                    bytes[..name.len()].copy_from_slice(name);
                    CustomerChoice::LastName(LastName { bytes, length })
                }
            };
            let amount = i64::from(amount);
            Input::Payment(PaymentInput {
                warehouse,
                district,
                customer_warehouse,
                customer_district,
                customer,
                amount,
            })
        } else {
            let [warehouse, carrier] = numbers(log)?;
            Input::Delivery { warehouse, carrier }
        })
    }
}

fn byte(log: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = log.split_first()?;
    *log = rest;
    Some(*byte)
}

fn numbers<const N: usize>(log: &mut &[u8]) -> Option<[i32; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (bytes, rest) = log.split_first_chunk()?;
        (*number, *log) = (i32::from_le_bytes(*bytes), rest);
    }
    Some(numbers)
}

/// A terminal: a source of inputs for some of the warehouses.
#[derive(Clone, Debug)]
pub struct Terminal {
    random: Random,
    scale: Scale,
    first_warehouse: i32,
    last_warehouse: i32,
}

impl Terminal {
    /// Terminal `number` of `terminals`. They share out the warehouses among them, so that they
    /// meet at one only through remote customers and remote stock; if there are more terminals
    /// than warehouses, some share one.
    pub fn new(scale: Scale, seed: u64, number: usize, terminals: usize) -> Terminal {
        let (warehouses, number, terminals) = (scale.warehouses, number as i32, terminals as i32);
        let (first, last) = if terminals <= warehouses {
            (number * warehouses / terminals + 1, (number + 1) * warehouses / terminals)
        } else {
            (number % warehouses + 1, number % warehouses + 1)
        };
        let random = Random::seeded(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9));
        Terminal { random, scale, first_warehouse: first, last_warehouse: last }
    }

    /// The next input of the standard mix.
    pub fn next_input(&mut self) -> Input {
        match self.random.uniform(1, 100) {
            1..=45 => Input::NewOrder(self.new_order()),
            46..=88 => Input::Payment(self.payment()),
            89..=92 => Input::OrderStatus {
                warehouse: self.home(),
                district: self.district(),
                customer: self.customer_choice(),
            },
            93..=96 => Input::Delivery { warehouse: self.home(), carrier: self.random.uniform(1, 10) as i32 },
            _ => Input::StockLevel {
                warehouse: self.home(),
                district: self.district(),
                threshold: self.random.uniform(10, 20) as i32,
            },
        }
    }

    fn new_order(&mut self) -> NewOrderInput {
        let warehouse = self.home();
        let district = self.district();
        let customer = self.customer_id();
        let line_count = self.random.uniform(5, 15) as usize;
        let rollback = self.random.uniform(1, 100) == 1;
        let mut lines = [LineInput::default(); MAX_LINES];
        for line in &mut lines[..line_count] {
            let remote = self.random.uniform(1, 100) == 1;
            *line = LineInput {
                item: nurand(
                    &mut self.random,
                    8191,
                    1,
                    i64::from(self.scale.items),
                    NuRandConstants::RUN.item,
                ),
                supply_warehouse: if remote { self.other_warehouse(warehouse) } else { warehouse },
                quantity: self.random.uniform(1, 10) as i32,
            };
        }
        if rollback {
            lines[line_count - 1].item = UNUSED_ITEM;
        }
        NewOrderInput { warehouse, district, customer, lines, line_count }
    }

    fn payment(&mut self) -> PaymentInput {
        let warehouse = self.home();
        let district = self.district();
        let remote = self.random.uniform(1, 100) > 85 && self.scale.warehouses > 1;
        let (customer_warehouse, customer_district) =
            if remote { (self.other_warehouse(warehouse), self.district()) } else { (warehouse, district) };
        let customer = self.customer_choice();
        let amount = self.random.uniform(100, 500_000);
        PaymentInput { warehouse, district, customer_warehouse, customer_district, customer, amount }
    }

    fn home(&mut self) -> i32 {
        self.random.uniform(i64::from(self.first_warehouse), i64::from(self.last_warehouse)) as i32
    }

    fn district(&mut self) -> i32 {
        self.random.uniform(1, i64::from(DISTRICTS)) as i32
    }

    /// Any warehouse but this one, if there is another.
    fn other_warehouse(&mut self, warehouse: i32) -> i32 {
        if self.scale.warehouses == 1 {
            return warehouse;
        }
        let other = self.random.uniform(1, i64::from(self.scale.warehouses) - 1) as i32;
        if other >= warehouse { other + 1 } else { other }
    }

    fn customer_id(&mut self) -> i32 {
        nurand(&mut self.random, 1023, 1, i64::from(self.scale.customers), NuRandConstants::RUN.customer)
    }

    fn customer_choice(&mut self) -> CustomerChoice {
        if self.random.uniform(1, 100) <= 60 {
            let names = i64::from(self.scale.last_names());
            CustomerChoice::LastName(LastName::of(nurand(
                &mut self.random,
                255,
                0,
                names - 1,
                NuRandConstants::RUN.last_name,
            )))
        } else {
            CustomerChoice::Id(self.customer_id())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_three_syllables() {
        assert_eq!(LastName::of(0).as_str(), "BARBARBAR");
        assert_eq!(LastName::of(371).as_str(), "PRICALLYOUGHT");
        assert_eq!(LastName::of(777).as_str(), "CALLYCALLYCALLY");
    }

    #[test]
    fn inputs_that_change_rows_are_decoded_as_they_were_encoded() {
        let mut terminal = Terminal::new(Scale::warehouses(5), 3, 0, 1);
        let inputs: Vec<Input> = (0..1000).map(|_| terminal.next_input()).collect();
        let mut log = Vec::new();
        inputs.iter().for_each(|input| input.encode(&mut log));
        let mut rest = &log[..];
        for input in inputs
            .iter()
            .filter(|input| [Kind::NewOrder, Kind::Payment, Kind::Delivery].contains(&input.kind()))
        {
            assert_eq!(Input::decode(&mut rest).as_ref(), Some(input));
        }
        assert_eq!(Input::decode(&mut rest), None);
    }

    #[test]
    fn the_mix_and_the_inputs_keep_to_the_specification() {
        let scale = Scale::warehouses(5);
        let mut terminal = Terminal::new(scale, 3, 0, 1);
        let mut kinds = [0; 5];
        let (mut rollbacks, mut lines, mut remote_lines, mut by_name, mut remote_payments) = (0, 0, 0, 0, 0);
        for _ in 0..100_000 {
            let input = terminal.next_input();
            kinds[input.kind() as usize] += 1;
            match input {
                Input::NewOrder(order) => {
                    assert!((5..=15).contains(&order.lines().len()));
                    assert!((1..=3000).contains(&order.customer) && (1..=5).contains(&order.warehouse));
                    for line in order.lines() {
                        lines += 1;
                        remote_lines += i32::from(line.supply_warehouse != order.warehouse);
                        rollbacks += i32::from(line.item == UNUSED_ITEM);
                        assert!(line.item == UNUSED_ITEM || (1..=100_000).contains(&line.item));
                    }
                }
                Input::Payment(payment) => {
                    by_name += i32::from(matches!(payment.customer, CustomerChoice::LastName(_)));
                    remote_payments += i32::from(payment.customer_warehouse != payment.warehouse);
                    assert!((100..=500_000).contains(&payment.amount));
                }
                _ => {}
            }
        }
        let near = |count: i32, expected: f64| (f64::from(count) / expected - 1.0).abs() < 0.15;
        for (kind, percent) in [45.0, 43.0, 4.0, 4.0, 4.0].into_iter().enumerate() {
            assert!(near(kinds[kind], percent * 1000.0), "{kinds:?}");
        }
        assert!(near(rollbacks, f64::from(kinds[0]) * 0.01), "{rollbacks}");
        assert!(near(remote_lines, f64::from(lines) * 0.01), "{remote_lines} of {lines}");
        assert!(near(by_name, f64::from(kinds[1]) * 0.6), "{by_name}");
        assert!(near(remote_payments, f64::from(kinds[1]) * 0.15), "{remote_payments}");
    }

    #[test]
    fn terminals_share_out_the_warehouses() {
        for (terminals, expected) in [(2, vec![(1, 2), (3, 5)]), (6, vec![(1, 1), (2, 2)])] {
            for (number, range) in expected.into_iter().enumerate() {
                let terminal = Terminal::new(Scale::small(5), 1, number, terminals);
                assert_eq!((terminal.first_warehouse, terminal.last_warehouse), range);
            }
        }
    }
}
