//! Amount and mix of the clients' operations.

use std::time::Duration;

use crate::rng::Rng;

/// Amount and mix of the clients' operations.
#[derive(Clone, Debug)]
pub struct Load {
    /// Number of clients, each with a connection to one machine.
    pub clients: usize,
    /// Least and longest wait of a client between an answer and its next request.
    pub think: (Duration, Duration),
    /// Number of hot keys of each family.
    pub hot_keys: u64,
    /// Number of cold keys of each family.
    pub cold_keys: u64,
    /// Number of operations after which a new key takes the place of a key.
    pub key_uses: u64,
    /// Shares of the families: registers, lists, counters, mixed, with deadlines, leases.
    pub families: [u64; 6],
    /// Of 1,000 operations, this many only read.
    pub reads: u32,
    /// Of 1,000 reads, this many are relaxed.
    pub relaxed: u32,
    /// Of 1,000 changes, this many carry an id and are repeated after an uncertain outcome.
    pub once: u32,
    /// Of 1,000 turns, this many send several requests without waiting.
    pub bursts: u32,
    /// Time for which a client waits for an answer.
    pub patience: Duration,
    /// Upper limit of operations in all.
    pub operations_max: u64,
    /// All keys lie in the first of this many equal parts of the ring.
    pub part: u128,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            clients: 6,
            think: (Duration::from_millis(1), Duration::from_millis(40)),
            hot_keys: 2,
            cold_keys: 20,
            key_uses: 150,
            families: [3, 2, 2, 2, 1, 1],
            reads: 400,
            relaxed: 50,
            once: 300,
            bursts: 100,
            patience: Duration::from_secs(3),
            operations_max: 20_000,
            part: 1,
        }
    }
}

impl Load {
    /// Returns the load of `clients` that read and write 400 keys equally, a few times a second each, for as long as the run lasts.
    pub fn even(clients: usize) -> Load {
        Load {
            clients,
            think: (Duration::from_millis(20), Duration::from_millis(60)),
            hot_keys: 200,
            cold_keys: 200,
            key_uses: 1_000_000,
            families: [1, 1, 1, 0, 0, 0],
            once: 0,
            bursts: 0,
            operations_max: u64::MAX,
            ..Load::default()
        }
    }

    /// Draws a load.
    pub(crate) fn draw(rng: &mut Rng) -> Load {
        let slowest = *rng.pick(&[10, 40, 40, 200]);
        let mut families = Load::default().families;
        for family in &mut families {
            if rng.per_mille(200) {
                *family = 0;
            }
        }
        if families == [0; 6] {
            families = Load::default().families;
        }
        Load {
            clients: rng.between(1, 10) as usize,
            think: (Duration::from_micros(100), Duration::from_millis(slowest)),
            hot_keys: rng.between(1, 3),
            cold_keys: rng.between(1, 40),
            families,
            reads: *rng.pick(&[100, 400, 800]),
            once: *rng.pick(&[0, 300, 1000]),
            bursts: *rng.pick(&[0, 100, 500]),
            patience: Duration::from_millis(*rng.pick(&[300, 1_000, 3_000, 3_000])),
            ..Load::default()
        }
    }
}
