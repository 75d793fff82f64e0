//! Tells the crate which commit it is built from.

mod commit;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    commit::tell();
}
