//! Tokens of a P4 program's text, with its macros expanded.

use std::collections::BTreeMap;

/// Token of the language.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Name(String),
    /// A number, with its width if it has one.
    Number(u128, Option<u32>),
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 29] = [
    "&&&", "&&", "||", "==", "!=", "<=", ">=", "++", "(", ")", "{", "}", "[", "]", "<", ">", ";", ":", ",", ".", "=",
    "+", "-", "!", "@", "&", "|", "^", "~",
];

struct Macro {
    parameters: Option<Vec<String>>,
    body: String,
}

/// Returns the tokens of a whole file. A shift is two signs, so that nested type arguments end as they should.
pub fn tokens(text: &str) -> Vec<Token> {
    let without_comments: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut macros = BTreeMap::new();
    let mut rest = String::new();
    for line in without_comments.replace("\\\n", " ").lines() {
        match line.strip_prefix('#') {
            None => rest.push_str(&(line.to_owned() + "\n")),
            Some(directive) => define(directive, &mut macros),
        }
    }
    split(&expand(&rest, &macros))
}

fn define(directive: &str, macros: &mut BTreeMap<String, Macro>) {
    let Some(definition) = directive.strip_prefix("define ") else {
        assert!(directive.starts_with("include <"), "#{directive}");
        return;
    };
    let end = definition.find(|c: char| !is_part(c)).unwrap_or(definition.len());
    let (name, after) = definition.split_at(end);
    let (parameters, body) = match after.strip_prefix('(').and_then(|after| after.split_once(')')) {
        None => (None, after),
        Some((parameters, body)) => (Some(parameters.split(',').map(|one| one.trim().to_owned()).collect()), body),
    };
    macros.insert(name.to_owned(), Macro { parameters, body: body.trim().to_owned() });
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Replaces names, in one pass over the text: this program's macros use no other macros.
fn replace(text: &str, mut with: impl FnMut(&str, &str) -> Option<(String, usize)>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        if end == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        let (replaced, taken) = with(word, after).unwrap_or((word.to_owned(), 0));
        out.push_str(&replaced);
        rest = &after[taken..];
    }
    out
}

fn expand(text: &str, macros: &BTreeMap<String, Macro>) -> String {
    replace(text, |word, after| {
        let Macro { parameters, body } = macros.get(word)?;
        let Some(parameters) = parameters else { return Some((body.clone(), 0)) };
        let close = after.find(')').expect("a macro's arguments end");
        let arguments: Vec<&str> = after[1..close].split(',').map(str::trim).collect();
        assert_eq!(arguments.len(), parameters.len(), "{word}");
        let body = replace(body, |word, _| {
            let place = parameters.iter().position(|parameter| parameter == word)?;
            Some((arguments[place].to_owned(), 0))
        });
        Some((body.replace(" ## ", ""), close + 1))
    })
}

fn split(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = if let Some(text) = rest.strip_prefix('"') {
            let (text, _) = text.split_once('"').expect("text ends");
            tokens.push(Token::Text(text.to_owned()));
            text.len() + 2
        } else if is_part(c) {
            let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            let word = &rest[..end];
            tokens.push(if c.is_ascii_digit() { number(word) } else { Token::Name(word.to_owned()) });
            end
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign =
                sign.unwrap_or_else(|| panic!("no sign of P4 that is known here: {}", &rest[..rest.len().min(20)]));
            tokens.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

fn number(word: &str) -> Token {
    let (width, digits) = match word.split_once('w') {
        None => (None, word),
        Some((width, digits)) => (Some(width.parse().expect("a width")), digits),
    };
    let value = match digits.strip_prefix("0x") {
        None => digits.parse(),
        Some(digits) => u128::from_str_radix(digits, 16),
    };
    Token::Number(value.unwrap_or_else(|_| panic!("no number: {word}")), width)
}
