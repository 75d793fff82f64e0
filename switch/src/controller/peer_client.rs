//! Requests to peers: few and small, each over a connection of its own, and each with a time limit.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::core::Answer;
use super::reports::{Group, PeerReport};

/// Upper limit of an answer, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Time after which a peer that has not reported its groups counts as absent.
const GET_PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for a request for an id: a peer itself reports a failure after ten seconds.
const POST_PATIENCE: Duration = Duration::from_secs(15);

/// Asks a peer for the report about its groups.
///
/// # Errors
/// The reason for which no report counts, in words.
pub async fn report(peer: SocketAddr) -> Result<PeerReport, String> {
    let (status, body) = ask(peer, request(Method::GET, peer, "/v1/offload", Bytes::new()), GET_PATIENCE).await?;
    match status {
        StatusCode::OK => PeerReport::read(&body).map_err(|why| format!("sent an invalid report: {why}")),
        other => Err(format!("answers {other}")),
    }
}

/// Asks a group for an id.
pub async fn request_id(peer: SocketAddr, group: Group, id: u32, token: Option<&HeaderValue>) -> Answer {
    let mut request =
        request(Method::POST, peer, &format!("/v1/groups/{group}/switch"), format!("{{\"id\":{id}}}").into());
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(token) = token {
        request.headers_mut().insert(AUTHORIZATION, token.clone());
    }
    match ask(peer, request, POST_PATIENCE).await {
        Ok((StatusCode::OK, _)) => Answer::Given,
        Ok((status, body)) => Answer::Not(match serde_json::from_slice(&body) {
            Ok(Refusal { error }) => format!("{peer} says: {}", error.chars().take(200).collect::<String>()),
            Err(_) => format!("{peer} answers {status}"),
        }),
        Err(why) => Answer::Not(format!("{peer} {why}")),
    }
}

#[derive(serde::Deserialize)]
struct Refusal {
    error: String,
}

fn request(method: Method, peer: SocketAddr, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    // A path of digits, letters and slashes always parses.
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.extend(HeaderValue::try_from(peer.to_string()).map(|host| (HOST, host)));
    request
}

async fn ask(
    peer: SocketAddr,
    request: Request<Full<Bytes>>,
    patience: Duration,
) -> Result<(StatusCode, Bytes), String> {
    let asking = async {
        let stream = TcpStream::connect(peer).await.map_err(|error| format!("cannot be reached: {error}"))?;
        let broken = |error: hyper::Error| format!("does not speak HTTP, or closed the connection: {error}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let answering = async {
            let answer = sender.send_request(request).await.map_err(broken)?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), BODY_BYTES_MAX).collect().await;
            Ok((
                status,
                body.map_err(|error| format!("sent an answer that cannot be read to the end: {error}"))?.to_bytes(),
            ))
        };
        tokio::pin!(connection, answering);
        tokio::select! {
            answer = &mut answering => answer,
            // When the connection is over, the answer that has come can still be read.
            _ = &mut connection => answering.await,
        }
    };
    timeout(patience, asking).await.unwrap_or_else(|_| Err(format!("did not answer within {} s", patience.as_secs())))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a peer that sends this answer and nothing more.
    async fn says(answer: Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(&answer).await;
        });
        address
    }

    #[tokio::test]
    async fn there_is_an_end_to_what_is_heard() {
        let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b' '; BODY_BYTES_MAX + 1]].concat();
        let said = report(says(endless).await).await.unwrap_err();
        assert!(said.contains("to the end"), "{said}");
        for (answer, words) in [
            ("SSH-2.0\r\n", "does not speak HTTP"),
            ("", "does not speak HTTP"),
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answers 404"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "to the end"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "sent an invalid report"),
        ] {
            let said = report(says(answer.into()).await).await.unwrap_err();
            assert!(said.contains(words), "{answer:?}: {said}");
        }
    }

    #[tokio::test]
    async fn what_a_group_refuses_is_in_its_words() {
        let refusal = "HTTP/1.1 409 Conflict\r\nContent-Length: 34\r\n\r\n{\"error\":\"no\",\"outcome\":\"refused\"}";
        let peer = says(refusal.into()).await;
        assert_eq!(request_id(peer, Group(1), 5, None).await, Answer::Not(format!("{peer} says: no")));
        let peer = says(b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
        assert_eq!(
            request_id(peer, Group(1), 5, None).await,
            Answer::Not(format!("{peer} answers 504 Gateway Timeout"))
        );
    }
}
