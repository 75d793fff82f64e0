//! The small files beside a store: JSON that names its format and the program that wrote it, with a checksum.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use environment::version::PROGRAM;

/// The content of such a file. The checksum finds a changed digit, which would still be a number.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed<C> {
    format: u32,
    program: String,
    #[serde(flatten)]
    content: C,
    crc32: u32,
}

/// The version of the program that wrote a file. These two fields keep their form in every version.
#[derive(Debug, Deserialize)]
struct WrittenBy {
    format: Option<u32>,
    program: Option<String>,
}

fn crc32<C: Serialize>(format: u32, program: &str, content: &C) -> u32 {
    // Maps are in order: equal contents have equal bytes.
    crc32fast::hash(&serde_json::to_vec(&(format, program, content)).expect("texts and numbers can always be written"))
}

/// Returns the bytes of a file of this format, as this program writes it.
pub(in super::super) fn text<C: Serialize>(format: u32, program: &str, content: &C) -> Vec<u8> {
    let crc32 = crc32(format, program, content);
    let sealed = Sealed { format, program: program.into(), content, crc32 };
    serde_json::to_vec_pretty(&sealed).expect("texts and numbers can always be written")
}

/// Parses the bytes of a file of this format.
///
/// # Errors
/// The bytes are no such file; the text gives the reason.
pub(in super::super) fn parse<C: Serialize + DeserializeOwned>(format: u32, text: &[u8]) -> Result<C, String> {
    let sealed = serde_json::from_slice::<Sealed<C>>(text).map_err(|error| error.to_string())?;
    match crc32(format, &sealed.program, &sealed.content) == sealed.crc32 {
        true => Ok(sealed.content),
        false => Err("its checksum is wrong".into()),
    }
}

/// Refuses the file of another version of the program. Bytes that cannot be parsed at all pass here.
///
/// # Errors
/// A text for the operator of this process: both versions, and the remedy.
pub(in super::super) fn check_format(path: &Path, text: &[u8], format: u32) -> Result<(), String> {
    let Ok(WrittenBy { format: found, program }) = serde_json::from_slice(text) else { return Ok(()) };
    let found = found.unwrap_or(1);
    if found == format {
        return Ok(());
    }
    let by = program.map(|program| program.chars().filter(|char| !char.is_control()).take(256).collect::<String>());
    let by = by.unwrap_or_else(|| "an older program of unknown version".into());
    Err(format!(
        "{} was written in format {found} by {by}; this program, {PROGRAM}, reads and writes format {format}, and has \
         changed nothing: run the program that wrote it",
        path.display()
    ))
}

/// Writes such a file, readable by its owner alone, so that a crash leaves the old or the new file.
///
/// # Errors
/// The system's error; the old file is left as it was.
pub(in super::super) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("json.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
