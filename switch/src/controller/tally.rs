//! Figures of the controller for monitoring.

use tokio::sync::watch;

use crate::monitoring::{Exposition, Monitored};

/// Current figures of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Peers that are asked.
    pub peers: u64,
    /// Peers that have answered lately.
    pub answering: u64,
    /// Groups that peers have reported.
    pub groups: u64,
    /// Groups for which another controller names ids at the moment.
    pub contested: u64,
    /// Partitions that are to be in the tables.
    pub placed: u64,
    /// Partitions of these that have an id.
    pub named: u64,
    /// Partitions for which there is no room.
    pub without_room: u64,
    /// The switch answers, and accepts the controller's entries.
    pub connected: bool,
    /// This controller is the primary one.
    pub primary: bool,
    /// Wall-clock time at which the tables were last found or made as wanted, in seconds since 1970; 0 means never.
    pub synced_unix_s: u64,
    /// Requests to peers without an answer, or without a valid one.
    pub reports_failed: u64,
    /// Times that a peer reported a group of which it is not a member.
    pub reports_refused: u64,
    /// Requests to groups to use an id.
    pub asks: u64,
    /// Requests after which the group had the id.
    pub ids_named: u64,
    /// Requests that were refused, or whose result is unknown.
    pub asks_refused: u64,
}

impl Tally {
    /// Returns all figures in Prometheus's format.
    pub fn text(&self) -> String {
        let mut page = Exposition::new("scatter_controller");
        for (name, kind, what, value) in [
            ("peers", "gauge", "Peers that are asked for reports about their groups.", self.peers),
            ("peers_answering", "gauge", "Peers that have answered in the last seconds.", self.answering),
            ("groups", "gauge", "Groups that peers have reported.", self.groups),
            (
                "groups_contested",
                "gauge",
                "Groups for which another controller names ids at the moment.",
                self.contested,
            ),
            ("partitions_placed", "gauge", "Partitions that the controller has placed in the switch.", self.placed),
            (
                "partitions_named",
                "gauge",
                "Placed partitions that have an id, so their reads can be spread.",
                self.named,
            ),
            ("partitions_without_room", "gauge", "Partitions that have no room in the switch.", self.without_room),
            (
                "connected",
                "gauge",
                "1 if the switch answers and has taken this controller's tables.",
                self.connected.into(),
            ),
            ("primary", "gauge", "1 if this is the primary controller of the switch.", self.primary.into()),
            (
                "last_sync_timestamp_seconds",
                "gauge",
                "Time at which the tables were last complete, in seconds since 1970; 0: never.",
                self.synced_unix_s,
            ),
            ("words_failed_total", "counter", "Requests to peers without a valid report.", self.reports_failed),
            (
                "words_refused_total",
                "counter",
                "Reports about a group by a peer that is not a member.",
                self.reports_refused,
            ),
            ("asks_total", "counter", "Requests to groups to use an id.", self.asks),
            ("ids_named_total", "counter", "Requests after which a group had the id.", self.ids_named),
            ("asks_refused_total", "counter", "Requests that were refused or got lost.", self.asks_refused),
        ] {
            page.one((name, kind, what), value);
        }
        page.into_text()
    }
}

impl Monitored for watch::Receiver<Tally> {
    fn metrics(&self) -> String {
        self.borrow().text()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn ask(mut stream: TcpStream, line: &str, host: &str) -> String {
        stream.write_all(format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn it_answers_whoever_asks_and_lets_others_go() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(at).unwrap();
        let (tallies, tally) = watch::channel(Tally::default());
        crate::monitoring::serve(listener, tally).unwrap();
        tallies.send_replace(Tally { groups: 7, connected: true, ..Tally::default() });
        // More connections than there are places send nothing: they make room.
        let _silent: Vec<TcpStream> = (0..64).map(|_| connect()).collect();
        let text = ask(connect(), "GET /metrics", "localhost");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\nscatter_controller_groups 7\n"), "{text}");
        assert!(
            text.contains("\n# TYPE scatter_controller_connected gauge\nscatter_controller_connected 1\n"),
            "{text}"
        );
        for (line, code) in [("GET /", "404"), ("GET /healthz", "404"), ("POST /metrics", "405")] {
            let text = ask(connect(), line, "localhost");
            assert!(text.starts_with(&format!("HTTP/1.1 {code} ")), "{text}");
        }
        let text = ask(connect(), "GET /metrics", "evil.example");
        assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("in the Host header, not another name"), "{text}");
    }
}
