//! Parsed answer, for comparisons of more than its bytes.

/// One answer, of either protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// `+`, `-`, `$`, `=`: text, with its kind.
    Text(char, String),
    /// `:`
    Integer(i64),
    /// `_`, `$-1`, `*-1`
    Nil,
    /// `*`, `~`
    Array(Vec<Tree>),
    /// `%`
    Map(Vec<(Tree, Tree)>),
}

impl Tree {
    /// Reads one whole answer.
    pub fn read(bytes: &[u8]) -> Tree {
        let (tree, rest) = next(bytes);
        assert!(rest.is_empty(), "more than one answer: {}", bytes.escape_ascii());
        tree
    }

    /// Returns the same answer without the values of these names, in a map or in a list of pairs.
    pub fn without_values_of(self, names: &[&str]) -> Tree {
        let named = |name: &Tree| matches!(name, Tree::Text(_, text) if names.contains(&text.as_str()));
        match self {
            Tree::Map(pairs) => Tree::Map(
                pairs
                    .into_iter()
                    .map(|(name, value)| if named(&name) { (name, Tree::Nil) } else { (name, value) })
                    .collect(),
            ),
            Tree::Array(mut items) => {
                for index in (0..items.len().saturating_sub(1)).step_by(2) {
                    if named(&items[index]) {
                        items[index + 1] = Tree::Nil;
                    }
                }
                Tree::Array(items)
            }
            other => other,
        }
    }
}

fn next(bytes: &[u8]) -> (Tree, &[u8]) {
    let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a whole line");
    let (kind, line, rest) = (bytes[0], &bytes[1..end], &bytes[end + 2..]);
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let number = || text(line).parse::<i64>().expect("a number");
    match kind {
        b':' => (Tree::Integer(number()), rest),
        b'_' => (Tree::Nil, rest),
        b'$' | b'*' if line == b"-1" => (Tree::Nil, rest),
        b'$' | b'=' => {
            let length = usize::try_from(number()).expect("a length");
            (Tree::Text(char::from(kind), text(&rest[..length])), &rest[length + 2..])
        }
        b'*' | b'~' => {
            let (items, rest) = several(number(), rest);
            (Tree::Array(items), rest)
        }
        b'%' => {
            let (items, rest) = several(number() * 2, rest);
            (Tree::Map(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()), rest)
        }
        _ => (Tree::Text(char::from(kind), text(line)), rest),
    }
}

fn several(count: i64, mut rest: &[u8]) -> (Vec<Tree>, &[u8]) {
    let mut items = Vec::new();
    for _ in 0..count {
        let (item, behind) = next(rest);
        items.push(item);
        rest = behind;
    }
    (items, rest)
}
