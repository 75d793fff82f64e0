//! Syntax of a program, as far as this project's program uses the language; anything else is an error.

use std::collections::BTreeMap;

/// Type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Bits(u32),
    Named(String),
}

/// Annotation: `@name(arguments)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    pub name: String,
    pub number: Option<u128>,
    pub text: Option<String>,
}

/// Expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Number(u128, Option<u32>),
    /// For example `hdr.ipv4.ttl`.
    Path(String),
    Slice(Box<Expression>, u32, u32),
    Cast(u32, Box<Expression>),
    Not(Box<Expression>),
    Two(&'static str, Box<Expression>, Box<Expression>),
    /// Call by a path, with the requested width from the angle brackets.
    Call(String, Option<u32>, Vec<Expression>),
    List(Vec<Expression>),
}

/// Statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Declare(u32, String, Option<Expression>),
    Assign(String, Expression),
    Call(Expression),
    If(Expression, Vec<Statement>, Vec<Statement>),
    Exit,
}

/// Value, and a mask for the bits of it that count.
pub type Case = (Expression, Option<Expression>);

/// Next state of the parser.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    To(String),
    /// The first case that matches these expressions. A case has a value and a mask for each; a case with none matches always.
    Select(Vec<Expression>, Vec<(Vec<Case>, String)>),
}

/// State of the parser.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub statements: Vec<Statement>,
    pub transition: Transition,
}

/// Field of a header or a struct, or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub annotations: Vec<Annotation>,
    pub kind: Type,
    pub name: String,
}

/// Action.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub annotations: Vec<Annotation>,
    pub parameters: Vec<Field>,
    pub body: Vec<Statement>,
}

/// Part of a table's key.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub path: String,
    pub kind: String,
    pub annotations: Vec<Annotation>,
}

/// Table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub annotations: Vec<Annotation>,
    pub keys: Vec<Key>,
    pub actions: Vec<(String, Vec<Annotation>)>,
    pub default: String,
    pub implementation: Option<String>,
    pub size: u128,
}

/// Instance of an architecture's extern, for example a register.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    pub annotations: Vec<Annotation>,
    pub kind: String,
    pub bits: Option<u32>,
    pub arguments: Vec<Expression>,
}

/// Control block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Control {
    pub instances: BTreeMap<String, Instance>,
    pub actions: BTreeMap<String, Action>,
    pub tables: BTreeMap<String, Table>,
    pub apply: Vec<Statement>,
}

/// Program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub constants: BTreeMap<String, (u32, u128)>,
    /// Headers and structs, by their names.
    pub records: BTreeMap<String, Vec<Field>>,
    pub states: BTreeMap<String, State>,
    pub controls: BTreeMap<String, Control>,
}

impl Program {
    /// Returns the width of a field: of `hdr`, which is a `headers_t`, or of `meta`, which is a `metadata_t`.
    pub fn width(&self, path: &str) -> Option<u32> {
        let mut parts = path.split('.');
        let mut record = match parts.next()? {
            "hdr" => "headers_t",
            "meta" => "metadata_t",
            _ => return None,
        };
        for part in parts {
            let field = self.records[record].iter().find(|field| field.name == part)?;
            match &field.kind {
                Type::Bits(bits) => return Some(*bits),
                Type::Named(name) => record = name,
            }
        }
        None
    }
}
