# Short names for the usual commands; `just --list` shows them. CONTRIBUTING.md and docs/developing.md explain each.

target := env('CARGO_TARGET_DIR', 'target')

# List the commands
default:
    @just --list

# Build the programs
build:
    cargo build --release

# Run all tests: the command of the README
test:
    cargo test --workspace

# Run the cores and their properties only
test-fast:
    cargo test -p overlay -p policy -p group -p header -p screen --lib

# Lint, with all warnings as errors
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# Format the sources
fmt:
    cargo fmt --all

# Build the documentation, private items included
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

# Run one simulated network and print every event: `just sim 17 --torn`
sim seed *flags:
    cargo run -p testnet --release -- sim --seed {{ seed }} {{ flags }} --trace

# Search new seeds for failures: `just swarm 480`, `just swarm 10 --ring`
swarm minutes="10" *flags:
    cargo run -p testnet --release -- sim --seed-from "$(date -I)" --minutes {{ minutes }} --jobs {{ num_cpus() }} --failures 10 {{ flags }}

# Write the golden files anew: stories of transactions, screens, and bytes; read the difference before you commit
bless:
    SCATTER_GOLDEN=write cargo test -p testnet --test golden
    SCATTER_GOLDEN=write cargo test -p cli --test top
    SCATTER_GOLDEN=write cargo test -p chirp-app --lib
    SCATTER_BLESS=1 cargo test -p node -p net -p store -p peer -p header golden

# Run a bench: `just bench store journal`
bench crate="testnet" name="one_group":
    cargo bench -p {{ crate }} --bench {{ name }}

# Start the demo
demo: build
    {{ target }}/release/scatter demo

# Run every check that a change must pass
ci:
    .ci/run
