//! As much of P4_16 as our program uses: enough to hold its text against everything else that says the same, and to run it.
//!
//! It is no compiler, and what it takes a compiler may not. But all of the text is read, nothing is skipped, and what it does is
//! done statement by statement.

pub mod bits;
pub mod lexer;
pub mod parser;
pub mod run;
pub mod syntax;
