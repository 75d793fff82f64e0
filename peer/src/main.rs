//! `scatter`: the daemon and the client commands.

fn main() -> std::process::ExitCode {
    peer::cli::main(peer::machine::launch)
}
