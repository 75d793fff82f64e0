//! File systems made for one test, of a known size and kind. Mounting them needs root.
#![allow(dead_code, missing_docs, reason = "each test uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Mounted file system; unmounted when this is dropped, also where a test fails.
pub struct Volume {
    dir: TempDir,
    at: PathBuf,
}

impl Volume {
    /// Mounts a tmpfs of `mib` MiB; its files are gone with it.
    ///
    /// # Errors
    /// The output of the program that failed. The same holds for [`Volume::ext4`].
    pub fn tmpfs(mib: u32) -> Result<Volume, String> {
        let volume = Volume::begin()?;
        run("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", volume.text()])?;
        Ok(volume)
    }

    /// Mounts an ext4 of `mib` MiB, in a file.
    pub fn ext4(mib: u64) -> Result<Volume, String> {
        let volume = Volume::begin()?;
        let image = volume.image();
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(mib << 20));
        made.map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-q", "-F", &image])?;
        volume.mount()?;
        Ok(volume)
    }

    fn begin() -> Result<Volume, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let at = dir.path().join("volume");
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        Ok(Volume { dir, at })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }

    pub fn text(&self) -> &str {
        self.at.to_str().expect("text")
    }

    fn image(&self) -> String {
        self.dir.path().join("image").to_str().expect("text").to_owned()
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop", &self.image(), self.text()])
    }

    /// Unmounts an ext4 and mounts it again, as a restarted machine does.
    pub fn again(&self) {
        run("umount", &[self.text()]).and_then(|()| self.mount()).expect("mounts again");
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.text()]);
    }
}

/// Runs a program to its end.
///
/// # Errors
/// Its output on stderr.
pub fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", said.trim())) }
}
