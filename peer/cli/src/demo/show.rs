//! The demo with a dashboard: the users' posts stand beside the ring, and two more keys kill and start peers.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use chirp_app::patience::random;
use chirp_app::timeline::Line;

use environment::lock;
use screen::terminal::End;

use super::network::Gone;
use super::people;
use super::{SharedNetwork, watch};
use crate::top::model::Model;
use crate::top::{self, Ended, Extra, Options, Pane};

/// Upper limit of chirps that are kept for the pane.
const LINES_MAX: usize = 100;

/// Shows the dashboard until the user ends it.
///
/// # Errors
///
/// A text for the user where the dashboard cannot start.
pub fn show(network: &SharedNetwork) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "as many as the few simulated people post; each frame takes all")]
    let (seen, said) = channel();
    #[expect(clippy::disallowed_methods, reason = "one message of each peer that ends")]
    let (tell, gone) = channel();
    let behind = network.clone();
    let background = thread::Builder::new().name("demo-people".into());
    background.spawn(move || go_on(&behind, seen, &tell)).map_err(|error| format!("cannot start: {error}"))?;
    let endpoints = network.clone();
    let http = lock(network).http();
    let model = top::look(&http).map_err(|(endpoint, trouble)| format!("{endpoint}: {trouble}"))?;
    #[expect(clippy::disallowed_methods, reason = "one message of each key")]
    let (done, dones) = channel();
    let extra = |key: char, what: &str, does: fn(&SharedNetwork) -> String| {
        let done = done.clone();
        let does = move |_: &Model| {
            let words = does(network);
            // The result of a key stays readable among the chirps, after the foot has shown it.
            let _ = done.send(words.clone());
            words
        };
        Extra { key, what: what.into(), does: Box::new(does) }
    };
    let mut pane = Chirps { said, gone, dones, lines: VecDeque::new() };
    let ended = top::run(Options {
        endpoints: Box::new(move || lock(&endpoints).http()),
        model,
        extras: vec![
            extra('K', "kill a peer", |network| lock(network).kill(u32::from_le_bytes(random()) as usize)),
            extra('S', "start a peer", |network| lock(network).start()),
        ],
        pane: Some(Box::new(move || pane.now())),
    });
    match ended {
        Ok(Ended::By(End::Panicked)) => Err("ended by what stands above".into()),
        Ok(Ended::Quit | Ended::By(_)) => Ok(()),
        Err(error) => Err(format!("{error}; --no-ui does without")),
    }
}

/// Lets the users post, and reports peers that end by themselves, until this process ends.
fn go_on(network: &SharedNetwork, seen: Sender<Line>, gone: &Sender<Gone>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        tokio::join!(people::talk(|| lock(network).resp(), Some(seen)), watch(network, |ended| drop(gone.send(ended))));
    });
}

/// Recent posts, and peers that ended without a kill by this demo.
struct Chirps {
    said: Receiver<Line>,
    gone: Receiver<Gone>,
    dones: Receiver<String>,
    lines: VecDeque<String>,
}

impl Chirps {
    fn now(&mut self) -> Pane {
        self.lines.extend(self.said.try_iter().map(|line| format!("{}: {}", line.user, line.record.text)));
        let gone = self.gone.try_iter().map(|gone| format!("{} ended ({}): S starts it again", gone.name, gone.status));
        self.lines.extend(gone);
        self.lines.extend(self.dones.try_iter());
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
        let lines = self.lines.iter().cloned().collect();
        Pane { title: format!("Chirp, as {} sees it", people::READER), lines }
    }
}
