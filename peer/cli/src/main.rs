//! `scatter`: the daemon and the client commands.
#![forbid(unsafe_code)]

/// Allocator: most memory is freed by another thread than the one that allocated it, at which the default
/// allocators are slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main(peer::machine::launch)
}
