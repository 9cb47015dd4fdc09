//! The crate from outside: cases as text, random trees, mistakes, and statements that are deep or wide.

mod cases;
mod generate;
mod limits;
mod mutate;
mod places;
mod random;
