//! The demo with a dashboard: what people say stands beside the ring, and two more keys kill and start peers.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use chirp_app::patience::random;
use chirp_app::timeline::Line;

use super::people;
use super::{Shared, watch};
use crate::lock::lock;
use crate::top::{self, Extra, Options, Pane};

/// So many chirps are kept for the pane.
const LINES_MAX: usize = 100;

/// Shows the dashboard until somebody has seen enough.
pub fn show(network: &Shared) -> Result<(), String> {
    let (seen, said) = channel();
    let (behind, ends) = (network.clone(), seen);
    let background = thread::Builder::new().name("demo-people".into());
    background.spawn(move || go_on(&behind, ends)).map_err(|error| format!("cannot start: {error}"))?;
    let endpoints = network.clone();
    let http = lock(network).http();
    let model = top::look(&http).map_err(|(endpoint, trouble)| format!("{endpoint}: {trouble}"))?;
    let extra = |key: char, what: &str, does: fn(&Shared) -> String| Extra {
        key,
        what: what.into(),
        does: Box::new(move |_| does(network)),
    };
    let mut pane = Chirps { said, lines: VecDeque::new() };
    let ended = top::run(Options {
        endpoints: Box::new(move || lock(&endpoints).http()),
        model,
        extras: vec![
            extra('K', "kill a peer", |network| lock(network).kill(u32::from_le_bytes(random()) as usize)),
            extra('S', "start a peer", |network| lock(network).start()),
        ],
        pane: Some(Box::new(move || pane.now())),
    });
    ended.map(|_| ()).map_err(|error| format!("{error}; --no-ui does without"))
}

/// People talk, and it is seen when peers end; until this process does.
fn go_on(network: &Shared, seen: Sender<Line>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        tokio::join!(people::talk(|| lock(network).resp(), Some(seen)), watch(network, |_| {}));
    });
}

/// What people have said of late.
struct Chirps {
    said: Receiver<Line>,
    lines: VecDeque<Line>,
}

impl Chirps {
    fn now(&mut self) -> Pane {
        self.lines.extend(self.said.try_iter());
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
        let lines = self.lines.iter().map(|line| format!("{}: {}", line.user, line.record.text)).collect();
        Pane { title: format!("Chirp, as {} sees it", people::READER), lines }
    }
}
