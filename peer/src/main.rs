//! `scatter`: the daemon and the client commands.

/// Most of what is allocated is freed by another thread, which the usual allocators are slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    peer::cli::main(peer::machine::launch)
}
