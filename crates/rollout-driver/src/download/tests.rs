//! Servers that give a file, break off, hang, lead elsewhere or do not have it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;

const ROWS: &str = "{\"prompt\": \"one\"}\n{\"prompt\": \"two\"}\n";

/// The version of a file.
const TAG: &str = "etag: \"one\"\r\n";

/// What a server does about one request.
#[derive(Debug, Clone)]
enum Does {
    /// Sends this, and closes.
    Says(String),
    /// Sends this, and then nothing more.
    Hangs(String),
}

/// A server: what it does about each request, one after the other; the last stays.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    does: Arc<Mutex<Vec<Does>>>,
    home: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

async fn server(does: &[Does]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, does) = (
        Arc::<Mutex<Vec<String>>>::default(),
        Arc::new(Mutex::new(does.to_vec())),
    );
    let mut tasks = JoinSet::new();
    let (heard, next) = (Arc::clone(&asked), Arc::clone(&does));
    tasks.spawn(async move {
        // Sockets of requests that are left hanging.
        let mut open = Vec::new();
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            open.extend(answer(socket, &heard, &next).await);
        }
    });
    Server {
        port,
        asked,
        does,
        home: tempfile::tempdir().unwrap(),
        _tasks: tasks,
    }
}

/// Answers one request; what it does not close comes back.
async fn answer(
    socket: TcpStream,
    asked: &Mutex<Vec<String>>,
    does: &Mutex<Vec<Does>>,
) -> Option<TcpStream> {
    let mut socket = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await.unwrap() == 0 {
            return None;
        }
    }
    asked.lock().push(head.to_ascii_lowercase());
    let next = {
        let mut does = does.lock();
        if does.len() > 1 {
            does.remove(0)
        } else {
            does[0].clone()
        }
    };
    let (Does::Says(text) | Does::Hangs(text)) = &next;
    let mut socket = socket.into_inner();
    socket.write_all(text.as_bytes()).await.unwrap();
    socket.flush().await.unwrap();
    matches!(next, Does::Hangs(_)).then_some(socket)
}

impl Server {
    fn url(&self) -> String {
        format!(
            "http://127.0.0.1:{}/sets/train.jsonl?signature=secret",
            self.port
        )
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// What is certainly on the disk, as a process finds it that starts after a crash.
    fn directory(&self) -> PathBuf {
        self.home.path().join("dataset")
    }

    async fn fetch(&self) -> Result<String, String> {
        self.fetch_within(limits()).await
    }

    async fn fetch_within(&self, limits: Limits) -> Result<String, String> {
        fetch_as(&self.url(), &self.directory(), None, limits).await
    }
}

async fn fetch_as(
    url: &str,
    directory: &Path,
    credentials: Option<Credentials>,
    limits: Limits,
) -> Result<String, String> {
    let wanted = Wanted {
        url,
        credentials,
        directory,
        trust: Trust::public(),
    };
    let here = fetch(wanted, limits)
        .await
        .map_err(|error| error.to_string())?;
    let text = std::fs::read_to_string(&here.path).unwrap();
    assert_eq!(here.digest, key(&text), "the digest is that of the file");
    Ok(text)
}

/// Patient enough for a busy machine: what ends well never waits for it.
fn limits() -> Limits {
    Limits {
        patience: Duration::from_secs(20),
        longest: Duration::from_secs(40),
        step: Duration::from_secs(10),
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(5),
        most: 1 << 20,
    }
}

fn token() -> Credentials {
    Credentials::from_keys(&BTreeMap::from([("token".to_owned(), b"word".to_vec())])).unwrap()
}

/// An answer with a body of which only the first bytes come.
fn cut(status: &str, headers: &str, body: &str, length: usize) -> Does {
    Does::Says(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    ))
}

fn says(status: &str, headers: &str, body: &str) -> Does {
    cut(status, headers, body, body.len())
}

fn whole() -> Does {
    says("200 OK", TAG, ROWS)
}

/// The file from a byte on.
fn rest(from: usize) -> Does {
    let range = format!(
        "content-range: bytes {from}-{}/{}\r\n{TAG}",
        ROWS.len() - 1,
        ROWS.len()
    );
    says("206 Partial Content", &range, &ROWS[from..])
}

fn leads_to(place: &str) -> Does {
    says("302 Found", &format!("location: {place}\r\n"), "")
}

#[tokio::test]
async fn a_file_comes_once_and_every_later_start_has_it() {
    let server = server(&[whole()]).await;
    assert_eq!(server.fetch().await.unwrap(), ROWS);
    let first = &server.asked()[0];
    assert!(
        first.starts_with("get /sets/train.jsonl?signature=secret http/1.1"),
        "{first}"
    );
    assert!(first.contains("accept-encoding: identity"), "{first}");
    assert!(!first.contains("\r\nrange:"), "{first}");
    *server.does.lock() = vec![says("500 Gone Mad", "", "")];
    assert_eq!(server.fetch().await.unwrap(), ROWS);
    assert_eq!(server.asked().len(), 1);
    // A file that lost a part of itself meanwhile is none.
    std::fs::write(server.directory().join("rows.jsonl"), "{}\n").unwrap();
    *server.does.lock() = vec![whole()];
    assert_eq!(server.fetch().await.unwrap(), ROWS);
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn what_breaks_off_goes_on_where_it_was() {
    let server = server(&[
        cut("200 OK", TAG, &ROWS[..10], ROWS.len()),
        says("503 Service Unavailable", "", "wait"),
        rest(10),
    ])
    .await;
    assert_eq!(server.fetch().await.unwrap(), ROWS);
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    for later in &asked[1..] {
        assert!(later.contains("\r\nrange: bytes=10-\r\n"), "{later}");
        assert!(later.contains("\r\nif-range: \"one\"\r\n"), "{later}");
    }
}

#[tokio::test]
async fn another_process_goes_on_where_the_one_before_was() {
    let server = server(&[
        cut("200 OK", TAG, &ROWS[..10], ROWS.len()),
        says("404 Not Found", "", ""),
        rest(10),
    ])
    .await;
    let refused = server.fetch().await.unwrap_err();
    assert!(
        refused.ends_with("/sets/train.jsonl has no such file (404)"),
        "{refused}"
    );
    // What a crash of the node leaves behind the last certain byte is nobody's.
    let part = server.directory().join("part");
    let mut bytes = std::fs::read(&part).unwrap();
    bytes.extend([0; 100]);
    std::fs::write(&part, bytes).unwrap();
    assert_eq!(server.fetch().await.unwrap(), ROWS);
    assert!(server.asked()[2].contains("\r\nrange: bytes=10-\r\n"));
}

#[tokio::test]
async fn a_part_without_what_its_mark_says_is_fetched_anew() {
    for spoil in [
        |directory: &Path| std::fs::write(directory.join("part"), "short").unwrap(),
        |directory: &Path| std::fs::write(directory.join("part.json"), "{").unwrap(),
    ] {
        let server = server(&[
            cut("200 OK", TAG, &ROWS[..10], ROWS.len()),
            says("404 Not Found", "", ""),
            whole(),
        ])
        .await;
        server.fetch().await.unwrap_err();
        spoil(&server.directory());
        assert_eq!(server.fetch().await.unwrap(), ROWS);
        assert!(!server.asked()[2].contains("\r\nrange:"));
    }
}

#[tokio::test]
async fn a_file_that_changed_in_the_middle_is_of_one_version() {
    let new = "{\"prompt\": \"three\"}\n";
    let newer = "etag: \"two\"\r\n";
    let of_new = format!("content-range: bytes 10-18/19\r\n{newer}");
    for changed in [
        // A server that looks at If-Range sends everything.
        vec![says("200 OK", newer, new)],
        // One that does not is found out.
        vec![
            says("206 Partial Content", &of_new, &new[10..]),
            says("200 OK", newer, new),
        ],
        vec![
            says(
                "416 Range Not Satisfiable",
                "content-range: bytes */5\r\n",
                "",
            ),
            says("200 OK", newer, new),
        ],
    ] {
        let mut does = vec![cut("200 OK", TAG, &ROWS[..10], ROWS.len())];
        does.extend(changed);
        let server = server(&does).await;
        assert_eq!(server.fetch().await.unwrap(), new);
    }
}

#[tokio::test]
async fn a_server_without_versions_or_parts_sends_everything_again() {
    let server = server(&[
        cut("200 OK", "", &ROWS[..10], ROWS.len()),
        cut("200 OK", "etag: W/\"weak\"\r\n", &ROWS[..20], ROWS.len()),
        whole(),
    ])
    .await;
    assert_eq!(server.fetch().await.unwrap(), ROWS);
    assert!(
        server
            .asked()
            .iter()
            .all(|asked| !asked.contains("\r\nrange:"))
    );
}

#[tokio::test]
async fn a_body_of_unknown_length_is_whole_when_its_server_says_so() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
    let first = format!("{chunked}{TAG}\r\nA\r\n{}\r\n", &ROWS[..10]);
    let last = format!("{:X}\r\n{}\r\n0\r\n\r\n", ROWS.len() - 10, &ROWS[10..]);
    let broken = server(&[Does::Says(first.clone()), rest(10)]).await;
    assert_eq!(broken.fetch().await.unwrap(), ROWS);
    assert_eq!(broken.asked().len(), 2);
    let good = server(&[Does::Says(first + &last)]).await;
    assert_eq!(good.fetch().await.unwrap(), ROWS);
    let until_closed = server(&[Does::Says(format!("HTTP/1.1 200 OK\r\n\r\n{ROWS}"))]).await;
    let refused = until_closed.fetch().await.unwrap_err();
    assert!(
        refused.contains("does not say how long the file is"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_part_that_is_shorter_than_was_asked_for_is_followed_by_the_next() {
    let range = format!("content-range: bytes 10-19/{}\r\n{TAG}", ROWS.len());
    let server = server(&[
        cut("200 OK", TAG, &ROWS[..10], ROWS.len()),
        says("206 Partial Content", &range, &ROWS[10..20]),
        rest(20),
    ])
    .await;
    assert_eq!(server.fetch().await.unwrap(), ROWS);
}

#[tokio::test]
async fn a_server_that_sends_more_than_there_is_is_not_believed() {
    let range = format!(
        "content-range: bytes 10-{}/{}\r\n{TAG}",
        ROWS.len() - 1,
        ROWS.len()
    );
    let more = format!("{}{{}}\n", &ROWS[10..]);
    let server = server(&[
        cut("200 OK", TAG, &ROWS[..10], ROWS.len()),
        says("206 Partial Content", &range, &more),
        whole(),
    ])
    .await;
    assert_eq!(server.fetch().await.unwrap(), ROWS);
}

#[tokio::test]
async fn who_does_not_give_the_file_is_told_at_once() {
    for (does, words) in [
        (says("404 Not Found", "", "no"), "has no such file (404)"),
        (says("401 Unauthorized", "", ""), "name it in secretRef"),
        (says("403 Forbidden", "", ""), "refuses the file (403)"),
        (
            says("200 OK", "content-type: text/html\r\n", "<html>"),
            "is a web page",
        ),
        (leads_to("/elsewhere"), "more than 5 times"),
        (leads_to("ftp://127.0.0.1/x"), "leads to a URL of ftp"),
        (cut("200 OK", TAG, "", 1 << 21), "more than 1048576 bytes"),
    ] {
        let server = server(&[does]).await;
        let said = server.fetch().await.unwrap_err();
        assert!(said.contains(words), "{said}");
        assert!(
            said.starts_with(&format!("http://127.0.0.1:{}/sets", server.port)),
            "{said}"
        );
        assert!(!said.contains("secret="), "{said}");
        let requests = if words.contains("5 times") { 6 } else { 1 };
        assert_eq!(server.asked().len(), requests, "{said}");
    }
    let plain = server(&[Does::Says("no HTTP\r\n\r\n".to_owned())]).await;
    let said = plain.fetch().await.unwrap_err();
    assert!(said.contains("does not answer in plain HTTP"), "{said}");
}

#[tokio::test]
async fn a_server_that_knows_no_jsonl_may_call_it_a_page() {
    let server = server(&[says("200 OK", "content-type: text/html\r\n", ROWS)]).await;
    assert_eq!(server.fetch().await.unwrap(), ROWS);
}

#[tokio::test]
async fn a_body_of_unknown_length_ends_at_the_most_that_is_taken() {
    let chunk = format!("{:X}\r\n{}\r\n", ROWS.len(), ROWS);
    let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}");
    let server = server(&[Does::Hangs(text)]).await;
    let most = ROWS.len() as u64 + 1;
    let said = server
        .fetch_within(Limits { most, ..limits() })
        .await
        .unwrap_err();
    assert!(said.contains(&format!("more than {most} bytes")), "{said}");
}

#[tokio::test]
async fn credentials_go_to_the_urls_own_host_alone() {
    let store = server(&[whole()]).await;
    let elsewhere = format!("http://localhost:{}/blob?signature=x", store.port);
    let hub = server(&[leads_to("/sets/moved.jsonl"), leads_to(&elsewhere)]).await;
    let text = fetch_as(&hub.url(), &hub.directory(), Some(token()), limits()).await;
    assert_eq!(text.unwrap(), ROWS);
    assert_eq!(hub.asked().len(), 2);
    for asked in hub.asked() {
        assert!(
            asked.contains("\r\nauthorization: bearer word\r\n"),
            "{asked}"
        );
    }
    assert!(!store.asked()[0].contains("authorization"));

    let closed = server(&[says("401 Unauthorized", "", "")]).await;
    let said = fetch_as(&closed.url(), &closed.directory(), Some(token()), limits()).await;
    let said = said.unwrap_err();
    assert!(
        said.contains("does not take the credentials of secretRef"),
        "{said}"
    );
    // Who refuses is named where it is somebody else.
    *store.does.lock() = vec![says("403 Forbidden", "", "")];
    let hub = server(&[leads_to(&elsewhere)]).await;
    let said = hub.fetch().await.unwrap_err();
    let words = format!(
        "leads to http://localhost:{}/blob, which refuses the file",
        store.port
    );
    assert!(said.contains(&words), "{said}");
}

/// Gives up soon when nothing comes.
fn impatient() -> Limits {
    Limits {
        patience: Duration::from_millis(50),
        ..limits()
    }
}

#[tokio::test]
async fn what_never_comes_is_given_up_with_the_last_reason() {
    let short = Duration::from_millis(20);
    let hasty = Limits {
        step: short,
        ..impatient()
    };
    for (does, limits, words) in [
        (
            says("500 Internal Server Error", "", ""),
            impatient(),
            "answered 500 Internal Server Error",
        ),
        (
            Does::Hangs(String::new()),
            hasty,
            "does not answer within 0.02 s",
        ),
        (
            Does::Says(String::new()),
            impatient(),
            "ends the connection",
        ),
    ] {
        let server = server(&[does]).await;
        let said = server.fetch_within(limits).await.unwrap_err();
        assert!(
            said.contains("no further byte within 0.05 s; 0 bytes"),
            "{said}"
        );
        assert!(said.contains(words), "{said}");
    }
    // Bound, so that nobody else is, and not listening.
    let silent = tokio::net::TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/rows.jsonl", silent.local_addr().unwrap());
    let home = tempfile::tempdir().unwrap();
    let said = fetch_as(&url, home.path(), None, impatient())
        .await
        .unwrap_err();
    assert!(
        said.contains("cannot be reached: Connection refused"),
        "{said}"
    );
}

#[tokio::test]
async fn a_server_that_stops_at_the_same_byte_each_time_makes_no_progress() {
    let server = server(&[cut("200 OK", "", &ROWS[..10], ROWS.len())]).await;
    let said = server.fetch_within(impatient()).await.unwrap_err();
    assert!(
        said.contains("10 bytes are here and kept; at last it broke off"),
        "{said}"
    );
    assert!(server.asked().len() > 1, "it was asked again");
}

#[tokio::test]
async fn a_body_that_stands_still_is_left_and_asked_for_again() {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{TAG}\r\n",
        ROWS.len()
    );
    let server = server(&[Does::Hangs(head + &ROWS[..10]), whole()]).await;
    let hasty = Limits {
        step: Duration::from_millis(200),
        ..limits()
    };
    assert_eq!(server.fetch_within(hasty).await.unwrap(), ROWS);
}

#[tokio::test]
async fn all_of_it_has_its_time_too() {
    let server = server(&[Does::Hangs(String::new())]).await;
    let limits = Limits {
        longest: Duration::from_millis(30),
        ..limits()
    };
    let said = server.fetch_within(limits).await.unwrap_err();
    assert!(
        said.contains("did not come within 0.03 s: 0 bytes"),
        "{said}"
    );
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_named() {
    let server = server(&[whole()]).await;
    std::fs::write(server.directory(), "a file").unwrap();
    let said = server.fetch().await.unwrap_err();
    assert!(
        said.starts_with("cannot write ") && said.ends_with("/dataset"),
        "{said}"
    );
}
