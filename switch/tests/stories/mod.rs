//! All stories of the treatment of packets: see `switch::trace`.

use std::fs;
use std::path::Path;

use switch::trace::Trace;

/// Returns the stories, by their names.
pub fn all() -> Vec<(String, Trace)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata");
    let mut stories = Vec::new();
    for file in fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let trace = fs::read_to_string(&path).unwrap().parse();
        stories.push((name.clone(), trace.unwrap_or_else(|wrong| panic!("{name}: {wrong}"))));
    }
    stories.sort_by(|(name, _), (other, _)| name.cmp(other));
    assert!(stories.len() >= 7);
    stories
}
