//! As much of P4_16 as our program uses: enough to hold its text against everything else that says the same.

pub mod lexer;
pub mod parser;
pub mod syntax;
