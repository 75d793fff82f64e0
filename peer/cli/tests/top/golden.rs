//! Golden files: text that was once checked. `SCATTER_GOLDEN=write` writes the present output.

use std::path::Path;

/// Checks that the golden file of this name holds this text.
#[track_caller]
pub fn check(name: &str, text: &str) {
    check_at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/top").join(name), text);
}

/// Checks a golden file at any path.
#[track_caller]
pub fn check_at(path: &Path, text: &str) {
    if std::env::var("SCATTER_GOLDEN").as_deref() == Ok("write") {
        std::fs::write(path, text).unwrap();
    }
    let wanted = std::fs::read_to_string(path).unwrap_or_default();
    if text == wanted {
        return;
    }
    let lines = text.lines().zip(wanted.lines().chain(std::iter::repeat("")));
    let (number, (now, before)) = lines.enumerate().find(|(_, (now, before))| now != before).unwrap_or((0, ("", "")));
    panic!(
        "{} is another now, first in line {}:\n{before}\n{now}\nIf that is meant: SCATTER_GOLDEN=write cargo test -p cli --test top\n",
        path.display(),
        number + 1
    );
}
