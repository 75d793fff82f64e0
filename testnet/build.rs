//! Tells the program which commit it is built from.

#[path = "../environment/commit.rs"]
mod commit;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    commit::tell();
}
