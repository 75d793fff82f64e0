//! The part of P4_16 that this project's program uses: enough to compare its text with every other description of it, and to run
//! it.
//!
//! This is no compiler, and a compiler may refuse a text that passes here. But all of the text is parsed, nothing is skipped, and
//! its statements are executed one by one.

pub mod bits;
pub mod lexer;
pub mod parser;
pub mod run;
pub mod syntax;
