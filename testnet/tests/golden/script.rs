//! Files of scripts: comments on their purpose, commands, a line of dashes, and the expected story.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// One script of a file.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Comment lines: the losses of the case, their times, and the source of the case.
    pub comments: Vec<String>,
    /// Command lines, as they stand in the file.
    lines: Vec<String>,
    pub expected: Vec<String>,
    /// Line of the file on which the script begins.
    pub line: usize,
}

impl Script {
    /// Returns the commands, one after another.
    pub fn commands(&self) -> Vec<String> {
        let all = self.lines.iter().flat_map(|line| line.split(';'));
        all.map(|command| command.trim().to_owned()).filter(|command| !command.is_empty()).collect()
    }
}

pub fn path(file: &str) -> PathBuf {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "testdata", "transactions"].iter().collect();
    folder.join(format!("{file}.txt"))
}

pub fn read(file: &str) -> Vec<Script> {
    let path = path(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Parses scripts, which are separated by empty lines.
///
/// # Errors
/// Returns the line with the mistake.
pub fn parse(text: &str) -> Result<Vec<Script>, String> {
    let mut scripts = Vec::new();
    let mut script = Script::default();
    let mut told = false;
    for (number, line) in text.lines().chain([""]).enumerate() {
        let here = |what: &str| format!("line {}: {what}", number + 1);
        if line.trim().is_empty() {
            if script.line > 0 {
                if !told {
                    return Err(here("a script has a line ---- behind its commands"));
                }
                scripts.push(std::mem::take(&mut script));
            }
            told = false;
            continue;
        }
        if script.line == 0 {
            script.line = number + 1;
        }
        if told {
            script.expected.push(line.to_owned());
        } else if line == "----" {
            told = true;
        } else if let Some(comment) = line.strip_prefix("# ") {
            if !script.lines.is_empty() {
                return Err(here("what it is for stands first"));
            }
            script.comments.push(comment.to_owned());
        } else {
            if script.comments.is_empty() {
                return Err(here("say first what it is for"));
            }
            script.lines.push(line.to_owned());
        }
    }
    Ok(scripts)
}

/// Formats scripts as the text of a file.
pub fn write(scripts: &[Script]) -> String {
    let mut text = String::new();
    for (place, script) in scripts.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        script.comments.iter().for_each(|comment| writeln!(text, "# {comment}").expect("text takes all"));
        script.lines.iter().for_each(|line| writeln!(text, "{line}").expect("text takes all"));
        text.push_str("----\n");
        script.expected.iter().for_each(|line| writeln!(text, "{line}").expect("text takes all"));
    }
    text
}

/// Formats the differences between the expected and the actual story, line by line.
pub fn difference(expected: &[String], came: &[String]) -> String {
    // Longest common subsequence of lines, by a table: stories are short.
    let (rows, columns) = (expected.len(), came.len());
    let mut common = vec![vec![0_u32; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = if expected[row] == came[column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column, mut text) = (0, 0, String::new());
    while row < rows || column < columns {
        let (mark, line) = if row < rows && column < columns && expected[row] == came[column] {
            (row, column) = (row + 1, column + 1);
            (' ', &came[column - 1])
        } else if column == columns || row < rows && common[row + 1][column] >= common[row][column + 1] {
            row += 1;
            ('-', &expected[row - 1])
        } else {
            column += 1;
            ('+', &came[column - 1])
        };
        writeln!(text, "{mark} {line}").expect("text takes all");
    }
    text
}
