//! Parser from tokens to a program.

use super::lexer::{Token, tokens};
use super::syntax::*;

/// Parses a whole program.
pub fn program(text: &str) -> Program {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut program = Program::default();
    while parser.at < parser.tokens.len() {
        parser.declaration(&mut program);
    }
    program
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn is_sign(&self, ahead: usize, sign: &str) -> bool {
        matches!(self.peek(ahead), Some(Token::Sign(other)) if *other == sign)
    }

    fn is_name(&self, ahead: usize, name: &str) -> bool {
        matches!(self.peek(ahead), Some(Token::Name(other)) if other == name)
    }

    fn fail(&self, wanted: &str) -> ! {
        let from = self.at.saturating_sub(8);
        let here = &self.tokens[from..(self.at + 8).min(self.tokens.len())];
        panic!("{wanted} is wanted after {:?} of {here:?}", &self.tokens[from..self.at])
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.is_sign(0, sign);
        self.at += usize::from(found);
        found
    }

    fn sign(&mut self, sign: &str) {
        if !self.take(sign) {
            self.fail(sign);
        }
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = self.is_name(0, name);
        self.at += usize::from(found);
        found
    }

    fn name(&mut self) -> String {
        let Some(Token::Name(name)) = self.peek(0).cloned() else { self.fail("a name") };
        self.at += 1;
        name
    }

    fn word(&mut self, word: &str) {
        if !self.take_name(word) {
            self.fail(word);
        }
    }

    fn number(&mut self) -> u128 {
        let Some(Token::Number(value, _)) = self.peek(0).cloned() else { self.fail("a number") };
        self.at += 1;
        value
    }

    fn width(&mut self) -> u32 {
        self.sign("<");
        let width = self.number() as u32;
        self.sign(">");
        width
    }

    fn kind(&mut self) -> Type {
        match self.name().as_str() {
            "bit" | "varbit" => Type::Bits(self.width()),
            name => Type::Named(name.to_owned()),
        }
    }

    fn list<T>(&mut self, end: &str, mut one: impl FnMut(&mut Parser) -> T) -> Vec<T> {
        let mut all = Vec::new();
        while !self.take(end) {
            all.push(one(self));
            if !self.take(",") {
                self.sign(end);
                break;
            }
        }
        all
    }

    fn many<T>(&mut self, mut one: impl FnMut(&mut Parser) -> T) -> Vec<T> {
        self.sign("{");
        let mut all = Vec::new();
        while !self.take("}") {
            all.push(one(self));
        }
        all
    }

    fn annotations(&mut self) -> Vec<Annotation> {
        let mut all = Vec::new();
        while self.take("@") {
            let mut annotation = Annotation { name: self.name(), number: None, text: None };
            if self.take("(") {
                while !self.take(")") {
                    match self.peek(0).cloned() {
                        Some(Token::Number(number, _)) => annotation.number = Some(number),
                        Some(Token::Text(text)) => annotation.text = Some(text),
                        _ => {}
                    }
                    self.at += 1;
                }
            }
            all.push(annotation);
        }
        all
    }

    fn declaration(&mut self, program: &mut Program) {
        self.annotations();
        match self.name().as_str() {
            "const" => {
                let Type::Bits(width) = self.kind() else { self.fail("bits") };
                let name = self.name();
                self.sign("=");
                program.constants.insert(name, (width, self.number()));
                self.sign(";");
            }
            "header" | "struct" => {
                let name = self.name();
                let fields = self.many(|parser| {
                    let field = Field { annotations: Vec::new(), kind: parser.kind(), name: parser.name() };
                    parser.sign(";");
                    field
                });
                program.records.insert(name, fields);
            }
            "parser" => {
                self.name();
                self.parameters();
                program.states = self.many(Parser::state).into_iter().collect();
            }
            "control" => {
                let name = self.name();
                self.parameters();
                let control = self.control();
                program.controls.insert(name, control);
            }
            "V1Switch" => {
                self.sign("(");
                let parts = self.list(")", Parser::expression);
                assert_eq!(parts.len(), 6, "a v1model switch has six parts");
                self.word("main");
                self.sign(";");
            }
            _ => self.fail("a declaration"),
        }
    }

    fn parameters(&mut self) -> Vec<Field> {
        self.sign("(");
        self.list(")", |parser| {
            let annotations = parser.annotations();
            let _direction = ["inout", "in", "out"].into_iter().find(|direction| parser.take_name(direction));
            Field { annotations, kind: parser.kind(), name: parser.name() }
        })
    }

    fn state(&mut self) -> (String, State) {
        self.word("state");
        let name = self.name();
        self.sign("{");
        let mut statements = Vec::new();
        while !self.take_name("transition") {
            statements.push(self.statement());
        }
        let transition = if self.take_name("select") {
            self.sign("(");
            let by = self.list(")", Parser::expression);
            let cases = self.many(|parser| {
                let values = if parser.take_name("default") {
                    Vec::new()
                } else if parser.take("(") {
                    parser.list(")", Parser::case)
                } else {
                    vec![parser.case()]
                };
                parser.sign(":");
                let to = parser.name();
                parser.sign(";");
                (values, to)
            });
            Transition::Select(by, cases)
        } else {
            let to = self.name();
            self.sign(";");
            Transition::To(to)
        };
        self.sign("}");
        (name, State { statements, transition })
    }

    fn case(&mut self) -> Case {
        (self.expression(), self.take("&&&").then(|| self.expression()))
    }

    fn control(&mut self) -> Control {
        let mut control = Control::default();
        self.sign("{");
        while !self.take("}") {
            let annotations = self.annotations();
            match self.name().as_str() {
                "apply" => control.apply = self.block(),
                "action" => {
                    let name = self.name();
                    let action = Action { annotations, parameters: self.parameters(), body: self.block() };
                    control.actions.insert(name, action);
                }
                "table" => {
                    let name = self.name();
                    let table = Table { annotations, ..self.table() };
                    control.tables.insert(name, table);
                }
                kind => {
                    let kind = kind.to_owned();
                    let bits = self.take("<").then(|| {
                        self.word("bit");
                        let bits = self.width();
                        self.sign(">");
                        bits
                    });
                    self.sign("(");
                    let arguments = self.list(")", Parser::expression);
                    let instance = Instance { annotations, kind, bits, arguments };
                    control.instances.insert(self.name(), instance);
                    self.sign(";");
                }
            }
        }
        control
    }

    fn table(&mut self) -> Table {
        let mut table = Table::default();
        self.sign("{");
        while !self.take("}") {
            let is_const = self.take_name("const");
            let property = self.name();
            self.sign("=");
            match property.as_str() {
                "key" => {
                    table.keys = self.many(|parser| {
                        let path = parser.path();
                        parser.sign(":");
                        let key = Key { path, kind: parser.name(), annotations: parser.annotations() };
                        parser.sign(";");
                        key
                    });
                    continue;
                }
                "actions" => {
                    table.actions = self.many(|parser| {
                        let annotations = parser.annotations();
                        let action = (parser.name(), annotations);
                        parser.sign(";");
                        action
                    });
                    continue;
                }
                "default_action" if is_const => {
                    table.default = self.name();
                    self.sign("(");
                    self.sign(")");
                }
                "implementation" => table.implementation = Some(self.name()),
                "size" => table.size = self.number(),
                _ => self.fail("a property of tables"),
            }
            self.sign(";");
        }
        table
    }

    fn block(&mut self) -> Vec<Statement> {
        self.many(Parser::statement)
    }

    fn statement(&mut self) -> Statement {
        if self.is_name(0, "bit") && self.is_sign(1, "<") {
            let Type::Bits(width) = self.kind() else { self.fail("bits") };
            let name = self.name();
            let value = self.take("=").then(|| self.expression());
            self.sign(";");
            return Statement::Declare(width, name, value);
        }
        if self.take_name("if") {
            self.sign("(");
            let condition = self.expression();
            self.sign(")");
            let then = self.block();
            let mut other = Vec::new();
            if self.take_name("else") {
                other = if self.is_name(0, "if") { vec![self.statement()] } else { self.block() };
            }
            return Statement::If(condition, then, other);
        }
        let statement = match self.expression() {
            Expression::Path(exit) if exit == "exit" => Statement::Exit,
            call @ Expression::Call(..) => Statement::Call(call),
            Expression::Path(path) => {
                self.sign("=");
                Statement::Assign(path, self.expression())
            }
            _ => self.fail("a statement"),
        };
        self.sign(";");
        statement
    }

    fn path(&mut self) -> String {
        let mut path = self.name();
        while self.take(".") {
            path = path + "." + &self.name();
        }
        path
    }

    fn expression(&mut self) -> Expression {
        self.two(0)
    }

    /// Parses binary operators by their precedence, the weakest first.
    fn two(&mut self, level: usize) -> Expression {
        const LEVELS: [&[&str]; 8] =
            [&["||"], &["&&"], &["==", "!="], &["<=", ">=", "<", ">"], &["^"], &["&"], &["<<"], &["++", "+", "-"]];
        let Some(signs) = LEVELS.get(level) else { return self.one() };
        let mut left = self.two(level + 1);
        loop {
            let Some(sign) = signs.iter().find(|sign| self.take_both(sign)) else { return left };
            left = Expression::Two(sign, Box::new(left), Box::new(self.two(level + 1)));
        }
    }

    /// Takes a sign between two operands; a shift has two signs.
    fn take_both(&mut self, sign: &str) -> bool {
        if sign != "<<" {
            return self.take(sign);
        }
        let is_shift = self.is_sign(0, "<") && self.is_sign(1, "<");
        self.at += if is_shift { 2 } else { 0 };
        is_shift
    }

    fn one(&mut self) -> Expression {
        if self.take("!") {
            return Expression::Not(Box::new(self.one()));
        }
        if self.take("{") {
            return Expression::List(self.list("}", Parser::expression));
        }
        if self.is_sign(0, "(") && self.is_name(1, "bit") {
            self.at += 2;
            let width = self.width();
            self.sign(")");
            return Expression::Cast(width, Box::new(self.one()));
        }
        let mut value = if self.take("(") {
            let inner = self.expression();
            self.sign(")");
            inner
        } else if let Some(Token::Number(value, width)) = self.peek(0).cloned() {
            self.at += 1;
            Expression::Number(value, width)
        } else {
            let path = self.path();
            let asked = (self.is_sign(0, "<") && self.is_name(1, "bit")).then(|| {
                self.at += 2;
                let width = self.width();
                self.sign(">");
                width
            });
            if self.take("(") {
                Expression::Call(path, asked, self.list(")", Parser::expression))
            } else {
                Expression::Path(path)
            }
        };
        while self.take("[") {
            let high = self.number() as u32;
            self.sign(":");
            value = Expression::Slice(Box::new(value), high, self.number() as u32);
            self.sign("]");
        }
        value
    }
}
