//! Interpreter of the program: its parser and its ingress, statement by statement.
//!
//! The interpreter lacks all features that this project's program does not use. The caller supplies the tables.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::bits::Bits;
use super::syntax::*;

/// Action of an entry: its name, with its arguments.
pub type Call = (String, Vec<u128>);

/// The program, with the state that packets change.
pub struct Machine<'a> {
    program: &'a Program,
    control: &'a Control,
    /// Entries of each table, by their keys. Of several actions one is chosen by `meta.chance`.
    pub tables: BTreeMap<String, BTreeMap<u128, Vec<Call>>>,
    /// Cells that are not zero, by registers.
    pub registers: BTreeMap<String, BTreeMap<u128, Bits>>,
    pub counters: BTreeMap<u128, u64>,
}

/// A packet with the state of its processing.
pub struct Packet {
    /// All fields and variables.
    pub values: BTreeMap<String, Bits>,
    pub valid: BTreeSet<String>,
    pub is_dropped: bool,
    pub chance: u32,
    rest: Vec<u8>,
    /// The parser wanted more bytes than there are.
    pub is_short: bool,
}

impl Packet {
    pub fn get(&self, path: &str) -> u128 {
        self.values.get(path).unwrap_or_else(|| panic!("{path}")).number()
    }

    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        if self.rest.len() < bytes {
            self.is_short = true;
            return None;
        }
        let rest = self.rest.split_off(bytes);
        Some(std::mem::replace(&mut self.rest, rest))
    }
}

enum Flow {
    Next,
    Exit,
}

enum Value {
    Bits(Bits),
    Bool(bool),
}

impl Value {
    fn bits(self) -> Bits {
        match self {
            Value::Bits(bits) => bits,
            Value::Bool(_) => panic!("bits are wanted"),
        }
    }

    fn truth(self) -> bool {
        match self {
            Value::Bool(truth) => truth,
            Value::Bits(_) => panic!("a truth is wanted"),
        }
    }
}

impl<'a> Machine<'a> {
    pub fn new(program: &'a Program, control: &str) -> Machine<'a> {
        let control = &program.controls[control];
        Machine { program, control, tables: BTreeMap::new(), registers: BTreeMap::new(), counters: BTreeMap::new() }
    }

    /// Returns the packet of a frame: all its fields are zero at first.
    pub fn packet(&self, frame: &[u8], chance: u32) -> Packet {
        let mut values = BTreeMap::new();
        for (name, record) in [("hdr", "headers_t"), ("meta", "metadata_t")] {
            self.zero(name, record, &mut values);
        }
        for (name, width) in [("parser_error", 32), ("checksum_error", 1), ("egress_spec", 9)] {
            values.insert(format!("standard_metadata.{name}"), Bits::new(0, width));
        }
        values.insert("error.NoError".to_owned(), Bits::new(0, 32));
        let rest = frame.to_vec();
        Packet { values, valid: BTreeSet::new(), is_dropped: false, chance, rest, is_short: false }
    }

    fn zero(&self, path: &str, record: &str, values: &mut BTreeMap<String, Bits>) {
        for field in &self.program.records[record] {
            let path = format!("{path}.{}", field.name);
            match &field.kind {
                Type::Bits(width) => drop(values.insert(path, Bits::new(0, (*width).min(256)))),
                Type::Named(record) => self.zero(&path, record, values),
            }
        }
    }

    /// Parses the headers of a packet.
    pub fn parse(&mut self, packet: &mut Packet) {
        let mut state = "start";
        while state != "accept" {
            let State { statements, transition } = &self.program.states[state];
            for statement in statements {
                self.statement(statement, packet);
                if packet.is_short {
                    packet.values.insert("standard_metadata.parser_error".to_owned(), Bits::new(1, 32));
                    return;
                }
            }
            state = match transition {
                Transition::To(state) => state,
                Transition::Select(by, cases) => {
                    let by: Vec<_> = by.iter().map(|by| self.eval(by, packet).bits()).collect();
                    let fits = |values: &[Case]| {
                        values.iter().zip(&by).all(|((value, mask), by)| {
                            let number = |expression: &Expression| self.eval(expression, packet).bits().number();
                            let mask = mask.as_ref().map_or(u128::MAX, number);
                            number(value) & mask == by.number() & mask
                        })
                    };
                    &cases.iter().find(|(values, _)| fits(values)).expect("a case that always fits").1
                }
            };
        }
    }

    /// Decides about a packet.
    pub fn process(&mut self, packet: &mut Packet) {
        let apply = &self.control.apply;
        self.block(apply, packet);
    }

    fn block(&mut self, statements: &[Statement], packet: &mut Packet) -> Flow {
        for statement in statements {
            if let Flow::Exit = self.statement(statement, packet) {
                return Flow::Exit;
            }
        }
        Flow::Next
    }

    fn statement(&mut self, statement: &Statement, packet: &mut Packet) -> Flow {
        match statement {
            Statement::Exit => return Flow::Exit,
            Statement::If(condition, then, other) => {
                let block = if self.eval(condition, packet).truth() { then } else { other };
                return self.block(block, packet);
            }
            Statement::Declare(width, name, value) => {
                let value = match value {
                    Some(Expression::Call(path, Some(asked), _)) if path == "packet.lookahead" => {
                        let bytes = (*asked / 8) as usize;
                        let Some(seen) = packet.rest.get(..bytes) else {
                            packet.is_short = true;
                            return Flow::Next;
                        };
                        number(seen, *asked)
                    }
                    Some(value) => self.eval(value, packet).bits(),
                    // Any value: no statement may read the variable before it is set.
                    None => Bits::just(u128::MAX),
                };
                packet.values.insert(name.clone(), value.fit(*width));
            }
            Statement::Assign(path, value) => {
                let value = self.eval(value, packet).bits();
                set(packet, path, value);
            }
            Statement::Call(Expression::Call(path, _, arguments)) => self.call(path, arguments, packet),
            Statement::Call(other) => panic!("{other:?}"),
        }
        Flow::Next
    }

    fn call(&mut self, path: &str, arguments: &[Expression], packet: &mut Packet) {
        let (what, method) = path.rsplit_once('.').unwrap_or(("", path));
        let out = |place: usize| match &arguments[place] {
            Expression::Path(path) => path.clone(),
            other => panic!("{other:?}"),
        };
        match (what, method) {
            ("packet", "extract") => {
                let varying = arguments.get(1).map_or(0, |bits| self.eval(bits, packet).bits().number());
                self.extract(&out(0), varying as usize, packet);
            }
            ("", "mark_to_drop") => packet.is_dropped = true,
            ("", "hash") => {
                let [_, Expression::Path(algorithm), base, Expression::List(of), max] = arguments else {
                    panic!("{arguments:?}")
                };
                assert_eq!(algorithm, "HashAlgorithm.crc32");
                let bytes: Vec<u8> = of.iter().flat_map(|part| self.eval(part, packet).bits().bytes()).collect();
                let number = |expression| self.eval(expression, packet).bits().number();
                let place = number(base) + u128::from(crc32fast::hash(&bytes)) % number(max);
                set(packet, &out(0), Bits::just(place));
            }
            ("", "random") => set(packet, &out(0), Bits::new(packet.chance.into(), 32)),
            ("verdicts", "count") => {
                let place = self.eval(&arguments[0], packet).bits().number();
                *self.counters.entry(place).or_default() += 1;
            }
            (register, "read") => {
                let place = self.eval(&arguments[1], packet).bits().number();
                let width = self.width(register, place);
                let cell = self.registers.get(register).and_then(|cells| cells.get(&place));
                set(packet, &out(0), cell.copied().unwrap_or(Bits::new(0, width)));
            }
            (register, "write") => {
                let place = self.eval(&arguments[0], packet).bits().number();
                let value = self.eval(&arguments[1], packet).bits().fit(self.width(register, place));
                self.registers.entry(register.to_owned()).or_default().insert(place, value);
            }
            (table, "apply") => self.apply(table, packet),
            ("", action) => {
                let arguments: Vec<_> = arguments.iter().map(|one| self.eval(one, packet).bits().number()).collect();
                self.act(action, &arguments, packet);
            }
            _ => panic!("{path}"),
        }
    }

    /// Returns the width of a register's cells. The cell at this place must exist.
    fn width(&self, register: &str, place: u128) -> u32 {
        let instance = &self.control.instances[register];
        assert!(matches!(instance.arguments[0], Expression::Number(size, _) if place < size), "{register}[{place}]");
        instance.bits.expect("a register of bits")
    }

    fn extract(&self, header: &str, varying: usize, packet: &mut Packet) {
        let name = header.strip_prefix("hdr.").expect("a header");
        let headers = &self.program.records["headers_t"];
        let Some(Type::Named(record)) = headers.iter().find(|field| field.name == name).map(|field| &field.kind) else {
            panic!("{header}")
        };
        // A field of variable width has the name that it has in this program.
        let widths: Vec<_> = self.program.records[record]
            .iter()
            .map(|field| match field.kind {
                Type::Bits(_) if field.name == "options" => (format!("{header}.{}", field.name), varying as u32),
                Type::Bits(width) => (format!("{header}.{}", field.name), width),
                Type::Named(_) => panic!("headers have bits alone"),
            })
            .collect();
        let all: u32 = widths.iter().map(|(_, width)| width).sum();
        let Some(bytes) = packet.take((all / 8) as usize) else { return };
        let mut at = 0;
        for (path, width) in widths {
            let bit = |place: u32| u128::from(bytes[(place / 8) as usize] >> (7 - place % 8) & 1);
            // Only checksums use options.
            let value = (at..at + width.min(128)).fold(0, |value, place| value << 1 | bit(place));
            packet.values.insert(path, Bits::new(value, width.clamp(1, 128)));
            at += width;
        }
        packet.valid.insert(header.to_owned());
    }

    fn apply(&mut self, name: &str, packet: &mut Packet) {
        let table = &self.control.tables[name];
        let [key, ..] = &table.keys[..] else { panic!("{name} has no key") };
        let entries = self.tables.get(name);
        let key = packet.get(&key.path);
        // Of prefixes, only one of no bits is tried.
        let found = entries.and_then(|entries| entries.get(if name.ends_with("_lpm") { &0 } else { &key }));
        let call = found.filter(|actions| !actions.is_empty()).map(|actions| match actions.len() {
            1 => actions[0].clone(),
            _ => actions[packet.chance as usize % actions.len()].clone(),
        });
        let (action, arguments) = call.unwrap_or_else(|| (table.default.clone(), Vec::new()));
        assert!(table.actions.iter().any(|(other, _)| *other == action), "{name} does not do {action}");
        if action != "NoAction" {
            self.act(&action, &arguments, packet);
        }
    }

    fn act(&mut self, name: &str, arguments: &[u128], packet: &mut Packet) {
        let action = &self.control.actions[name];
        assert_eq!(action.parameters.len(), arguments.len(), "{name}");
        for (parameter, argument) in action.parameters.iter().zip(arguments) {
            let Type::Bits(width) = parameter.kind else { panic!("{parameter:?}") };
            packet.values.insert(parameter.name.clone(), Bits::new(*argument, width));
        }
        self.block(&action.body, packet);
    }

    fn eval(&self, expression: &Expression, packet: &Packet) -> Value {
        let bits = |expression: &Expression| self.eval(expression, packet).bits();
        Value::Bits(match expression {
            Expression::Number(number, None) => Bits::just(*number),
            Expression::Number(number, Some(width)) => Bits::new(*number, *width),
            Expression::Path(path) => match (packet.values.get(path), self.program.constants.get(path)) {
                (Some(value), _) => *value,
                (None, Some((width, number))) => Bits::new(*number, *width),
                (None, None) => panic!("nothing is called {path}"),
            },
            Expression::Slice(of, high, low) => bits(of).slice(*high, *low),
            Expression::Cast(width, of) => bits(of).cast(*width),
            Expression::Not(of) => return Value::Bool(!self.eval(of, packet).truth()),
            Expression::Call(path, ..) => {
                let header = path.strip_suffix(".isValid").unwrap_or_else(|| panic!("{path}"));
                return Value::Bool(packet.valid.contains(header));
            }
            Expression::List(_) => panic!("a list is no number"),
            Expression::Two(sign, one, other) => {
                let truth = |expression: &Expression| self.eval(expression, packet).truth();
                let compared = || bits(one).compare(bits(other));
                return Value::Bool(match *sign {
                    "&&" => truth(one) && truth(other),
                    "||" => truth(one) || truth(other),
                    "==" => compared() == Ordering::Equal,
                    "!=" => compared() != Ordering::Equal,
                    "<" => compared() == Ordering::Less,
                    ">" => compared() == Ordering::Greater,
                    "<=" => compared() != Ordering::Greater,
                    ">=" => compared() != Ordering::Less,
                    "++" => return Value::Bits(bits(one).concat(bits(other))),
                    "+" => return Value::Bits(bits(one).add(bits(other), false)),
                    "-" => return Value::Bits(bits(one).add(bits(other), true)),
                    "^" => return Value::Bits(bits(one).xor(bits(other))),
                    "&" => return Value::Bits(bits(one).and(bits(other))),
                    "<<" => return Value::Bits(bits(one).shift(bits(other))),
                    sign => panic!("{sign}"),
                });
            }
        })
    }
}

fn set(packet: &mut Packet, path: &str, value: Bits) {
    let place = packet.values.get_mut(path).unwrap_or_else(|| panic!("nothing is called {path}"));
    *place = value.fit(place.width.expect("a width"));
}

fn number(bytes: &[u8], width: u32) -> Bits {
    Bits::new(bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)), width)
}
