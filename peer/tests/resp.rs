//! The RESP endpoint from outside, byte for byte.

mod common;

use common::Server;
use common::memory::Manner;

#[test]
fn answers() {
    let server = Server::start(Manner::Prompt);
    let mut client = server.client();
    for (line, expected) in [
        ("PING", r"+PONG\r\n"),
        ("SET a 1", r"+OK\r\n"),
        ("GET a", r"$1\r\n1\r\n"),
        (
            "foo a b",
            r"-ERR unknown command \'foo\', with args beginning with: \'a\' \'b\' \r\n",
        ),
    ] {
        assert_eq!(client.line(line), expected, "{line}");
    }
    server.stop();
}
