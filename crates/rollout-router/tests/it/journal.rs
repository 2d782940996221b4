//! The journal alone: what it keeps, what it survives, what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rollout_router::HexId;
use rollout_router::journal::{
    Entry, Journal, JournalError, JournalOptions, Recovered, RecoveredSession, SentRequest, Sync,
};

use crate::dice::Dice;

fn options() -> JournalOptions {
    JournalOptions::default()
}

fn open(path: &Path) -> (Journal, Recovered) {
    Journal::open(path, options()).unwrap()
}

fn id(number: u32) -> HexId {
    HexId::parse(&format!("{number:032x}")).unwrap()
}

fn created(session: HexId) -> Entry {
    let spec = format!("spec of {}", session.as_str()).into_bytes();
    Entry::SessionCreated { session, spec }
}

/// A turn whose bytes follow from what it is.
fn turn_bytes(session: HexId, number: u32) -> Vec<u8> {
    let length = usize::try_from(number).unwrap() * 977 % 9_000 + 10;
    let text = format!("{} {number};", session.as_str());
    text.bytes().cycle().take(length).collect()
}

fn turn(session: HexId, number: u32) -> Entry {
    Entry::TurnCommitted {
        session,
        number,
        rid: id(1_000_000 + number),
        turn: turn_bytes(session, number),
    }
}

fn write(journal: &Journal, entry: Entry) -> Result<(), JournalError> {
    journal.append(entry)?.wait()
}

/// A session with so many turns.
fn fill(journal: &Journal, session: HexId, turns: u32) {
    write(journal, created(session)).unwrap();
    let pending: Vec<_> = (0..turns)
        .map(|number| journal.append(turn(session, number)).unwrap())
        .collect();
    for pending in pending {
        pending.wait().unwrap();
    }
}

fn assert_true_turns(session: &RecoveredSession) {
    for (number, bytes) in (0..).zip(&session.turns) {
        assert_eq!(*bytes, turn_bytes(session.session, number), "turn {number}");
    }
}

#[test]
fn everything_that_was_written_is_there_again_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/journal.sqlite");
    let (journal, recovered) = open(&path);
    assert_eq!(recovered, Recovered::default());
    fill(&journal, id(2), 3);
    fill(&journal, id(1), 1);
    let sent = |session, rid| Entry::RequestSent {
        session,
        rid,
        engine: "http://e:1".to_owned(),
    };
    for rid in [id(1_000_003), id(8), id(9)] {
        write(&journal, sent(id(2), rid)).unwrap();
    }
    let (session, rid) = (id(2), id(8));
    write(&journal, Entry::RequestOver { session, rid }).unwrap();
    write(&journal, turn(id(2), 3)).unwrap();
    let outcome = b"done".to_vec();
    let (session, ended) = (id(1), outcome.clone());
    write(&journal, Entry::SessionEnded { session, outcome }).unwrap();
    journal.close();
    let (_journal, recovered) = open(&path);
    assert_eq!(recovered.damage, [""; 0]);
    let [first, second] = &recovered.sessions[..] else {
        panic!("{recovered:?}")
    };
    assert_eq!((first.session, first.turns.len()), (id(2), 4));
    assert_eq!(
        first.spec,
        format!("spec of {}", id(2).as_str()).into_bytes()
    );
    assert_true_turns(first);
    let left = SentRequest {
        rid: id(9),
        engine: "http://e:1".to_owned(),
    };
    assert_eq!(first.sent, [left]);
    assert_eq!((second.session, second.turns.len()), (id(1), 1));
    assert_eq!(second.ended, Some(ended));
}

#[test]
fn nothing_is_written_twice_and_nothing_after_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (journal, _) = open(&path);
    fill(&journal, id(1), 2);
    let error = write(&journal, turn(id(1), 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "session 000000000000: turn 1 is in the journal already"
    );
    assert!(matches!(
        write(&journal, created(id(1))).unwrap_err(),
        JournalError::Twice { .. }
    ));
    let stranger = write(&journal, turn(id(5), 0)).unwrap_err();
    assert!(
        matches!(stranger, JournalError::NoSession { .. }),
        "{stranger}"
    );
    write(&journal, Entry::SessionRemoved { session: id(1) }).unwrap();
    let late = write(&journal, turn(id(1), 2)).unwrap_err();
    assert!(matches!(late, JournalError::NoSession { .. }), "{late}");
    journal.close();
    assert_eq!(open(&path).1, Recovered::default());
}

#[test]
fn entries_that_wait_together_do_not_harm_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(&directory.path().join("journal"));
    let sessions = 1..200;
    let pending: Vec<_> = sessions
        .clone()
        .flat_map(|number| {
            [
                created(id(number)),
                turn(id(number), 0),
                turn(id(number + 1_000), 0),
            ]
        })
        .map(|entry| journal.append(entry).unwrap())
        .collect();
    let results: Vec<bool> = pending
        .into_iter()
        .map(|pending| pending.wait().is_ok())
        .collect();
    let expected: Vec<bool> = sessions.flat_map(|_| [true, true, false]).collect();
    assert_eq!(results, expected);
}

#[test]
fn a_journal_belongs_to_one_process_and_to_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (journal, _) = open(&path);
    let error = Journal::open(&path, options()).unwrap_err();
    assert!(
        error.to_string().ends_with("is in use by another process"),
        "{error}"
    );
    journal.close();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.pragma_update(None, "user_version", 7).unwrap();
    drop(other);
    let error = Journal::open(&path, options()).unwrap_err();
    assert!(
        matches!(error, JournalError::Version { found: 7, .. }),
        "{error}"
    );
    let nowhere = Journal::open(Path::new("/proc/nowhere/journal"), options()).unwrap_err();
    assert!(matches!(nowhere, JournalError::File { .. }), "{nowhere}");
}

#[test]
fn a_full_journal_ends_the_session_that_it_cannot_record_and_takes_others_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let small = JournalOptions {
        max_bytes: 256 << 10,
        ..options()
    };
    let (journal, _) = Journal::open(&path, small).unwrap();
    let big = |session, number| Entry::TurnCommitted {
        session,
        number,
        rid: id(number),
        turn: vec![7; 100 << 10],
    };
    write(&journal, created(id(1))).unwrap();
    write(&journal, created(id(2))).unwrap();
    write(&journal, big(id(1), 0)).unwrap();
    let error = [1, 2, 3]
        .into_iter()
        .find_map(|number| write(&journal, big(id(1), number)).err())
        .unwrap();
    assert!(matches!(error, JournalError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("no space is left"), "{error}");
    // Its next turn would fit, but the one before is lost.
    let rid = id(9);
    let next = Entry::RequestSent {
        session: id(1),
        rid,
        engine: String::new(),
    };
    let error = write(&journal, next).unwrap_err();
    assert!(matches!(error, JournalError::Unrecorded { .. }), "{error}");
    assert!(error.to_string().contains("no space is left"), "{error}");
    write(&journal, turn(id(2), 0)).unwrap();
    write(&journal, Entry::SessionRemoved { session: id(1) }).unwrap();
    write(&journal, big(id(2), 1)).unwrap();
    journal.close();
    let (_journal, recovered) = open(&path);
    assert_eq!(recovered.sessions.len(), 1);
    assert_eq!(recovered.sessions[0].turns.len(), 2);
}

#[test]
fn sessions_that_are_gone_give_their_room_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (journal, _) = open(&path);
    let mut sizes = Vec::new();
    for round in 0..6 {
        for number in 0..20 {
            fill(&journal, id(round * 100 + number), 10);
        }
        for number in 0..20 {
            let session = id(round * 100 + number);
            write(&journal, Entry::SessionRemoved { session }).unwrap();
        }
        let bytes = |suffix: &str| {
            let file = directory.path().join(format!("journal{suffix}"));
            std::fs::metadata(file).map_or(0, |metadata| metadata.len())
        };
        sizes.push(bytes("") + bytes("-wal"));
    }
    let written: usize = (0..10)
        .map(|number| turn_bytes(id(1), number).len())
        .sum::<usize>()
        * 20;
    let last = usize::try_from(*sizes.last().unwrap()).unwrap();
    // One round and a log, not six rounds.
    assert!(last < 2 * written + (6 << 20), "{sizes:?}");
    assert!(sizes[5] < sizes[1] + (1 << 20), "{sizes:?}");
}

#[test]
fn what_waits_is_bounded_and_waiting_has_a_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let tight = JournalOptions {
        max_waiting_bytes: 64 << 10,
        sync: Sync::Power,
        ..options()
    };
    let (journal, _) = Journal::open(&path, tight).unwrap();
    // One that is too large alone is still taken.
    let session = id(1);
    let spec = vec![1; 1 << 20];
    write(&journal, Entry::SessionCreated { session, spec }).unwrap();
    let mut behind = 0;
    let mut pending = Vec::new();
    for number in 0..2_000 {
        match journal.append(turn(session, number)) {
            Ok(waits) => pending.push(waits),
            Err(JournalError::Behind { bytes }) => {
                assert!(bytes > 64 << 10);
                behind += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(behind > 0);
    for waits in pending {
        waits.wait().unwrap();
    }
}

#[tokio::test]
async fn an_entry_is_waited_for_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(&directory.path().join("journal"));
    let waits = journal.append(created(id(1))).unwrap();
    waits.durable(Duration::from_mins(1)).await.unwrap();
    let again = journal.append(created(id(1))).unwrap();
    assert!(again.durable(Duration::from_mins(1)).await.is_err());
}

const SESSIONS: u32 = 12;
const TURNS: u32 = 8;

/// A whole journal as bytes.
fn whole() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (journal, _) = open(&path);
    for number in 1..=SESSIONS {
        fill(&journal, id(number << 16), TURNS);
    }
    journal.close();
    std::fs::read(&path).unwrap()
}

/// Opens a damaged journal. Answers how many turns are there again.
fn recover(bytes: &[u8], what: &str) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    std::fs::write(&path, bytes).unwrap();
    let (journal, recovered) = match Journal::open(&path, options()) {
        Ok(opened) => opened,
        Err(error) => panic!("{what}: {error}"),
    };
    let mut turns = 0;
    for session in &recovered.sessions {
        assert_eq!(
            session.spec,
            format!("spec of {}", session.session.as_str()).into_bytes()
        );
        assert_true_turns(session);
        turns += session.turns.len();
    }
    let all = usize::try_from(SESSIONS * TURNS).unwrap();
    if turns < all {
        assert!(!recovered.damage.is_empty(), "{what}: {turns} turns");
    }
    if recovered.damage.is_empty() {
        assert_eq!(recovered.set_aside, None);
    } else {
        assert!(recovered.set_aside.as_ref().unwrap().exists(), "{what}");
    }
    // It goes on.
    if let Some(session) = recovered.sessions.first() {
        let next = u32::try_from(session.turns.len()).unwrap();
        write(&journal, turn(session.session, next)).unwrap();
    }
    write(&journal, created(id(77))).unwrap();
    journal.close();
    let (_journal, again) = open(&path);
    assert_eq!(again.damage, [""; 0], "{what}");
    assert_eq!(again.sessions.len(), recovered.sessions.len() + 1, "{what}");
    turns
}

#[test]
fn of_a_damaged_file_everything_else_is_recovered() {
    let whole = whole();
    let mut dice = Dice(11);
    let mut recovered = 0;
    let rounds = 60;
    for _ in 0..rounds {
        let mut bytes = whole.clone();
        let at = dice.roll(bytes.len());
        let length = [1, 16, 200, 5_000][dice.roll(4)];
        for byte in bytes.iter_mut().skip(at).take(length) {
            *byte = u8::try_from(dice.roll(256)).unwrap();
        }
        recovered += recover(&bytes, &format!("{length} bytes at {at}"));
    }
    let all = usize::try_from(SESSIONS * TURNS).unwrap() * rounds;
    assert!(recovered * 10 > all * 8, "{recovered} of {all}");
}

#[test]
fn of_a_file_with_a_damaged_beginning_the_rest_is_recovered() {
    let whole = whole();
    for (at, length) in [
        (0, 16),
        (16, 2),
        (18, 2),
        (28, 4),
        (40, 60),
        (60, 4),
        (0, 100),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + length].fill(0xfe);
        let turns = recover(&bytes, &format!("{length} bytes at {at}"));
        assert_eq!(
            turns,
            usize::try_from(SESSIONS * TURNS).unwrap(),
            "{length} bytes at {at}"
        );
    }
}

#[test]
fn of_a_file_that_was_cut_the_rest_is_recovered() {
    let whole = whole();
    let mut most = 0;
    for part in 0..20 {
        let length = whole.len() * part / 20 + 7 * (part % 3);
        most = most.max(recover(&whole[..length], &format!("cut to {length} bytes")));
    }
    assert!(
        most > usize::try_from(SESSIONS * TURNS).unwrap() / 2,
        "{most}"
    );
}

#[test]
fn of_a_file_of_somebody_else_nothing_is_taken_and_nothing_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    std::fs::write(
        &path,
        "not a journal at all, but somebody's notes\n".repeat(400),
    )
    .unwrap();
    let before = std::fs::read(&path).unwrap();
    let (_journal, recovered) = open(&path);
    assert_eq!(recovered.sessions, []);
    assert_eq!(recovered.damage.len(), 1, "{:?}", recovered.damage);
    assert_eq!(std::fs::read(recovered.set_aside.unwrap()).unwrap(), before);
}

/// Where a child that is to be killed has its journal.
const DIRECTORY: &str = "JOURNAL_TEST_DIRECTORY";
/// The number of its first session.
const FIRST: &str = "JOURNAL_TEST_FIRST";

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").unwrap();
    stdout.flush().unwrap();
}

/// The child: writes until it is killed, or a while when nobody kills it. Says what is durable after it is, and what it takes away before.
#[test]
#[ignore = "started by the test that kills it"]
fn a_writer() {
    let own;
    let directory = if let Some(directory) = std::env::var_os(DIRECTORY) {
        PathBuf::from(directory)
    } else {
        own = tempfile::tempdir().unwrap();
        own.path().to_owned()
    };
    let (journal, _) = open(&directory.join("journal"));
    let first = std::env::var(FIRST).map_or(1, |number| number.parse().unwrap());
    let next = AtomicU32::new(first);
    std::thread::scope(|scope| {
        for worker in 0..4u32 {
            let (journal, next) = (&journal, &next);
            scope.spawn(move || {
                for round in 0..100 {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let session = id(number);
                    write(journal, created(session)).unwrap();
                    say(&format!("begun {number}"));
                    let turns = 1 + (number + worker) % 12;
                    for turn_number in 0..turns {
                        let rid = id(1_000_000 + turn_number);
                        let engine = "e".to_owned();
                        write(
                            journal,
                            Entry::RequestSent {
                                session,
                                rid,
                                engine,
                            },
                        )
                        .unwrap();
                        write(journal, turn(session, turn_number)).unwrap();
                        say(&format!("turn {number} {turn_number}"));
                    }
                    if (round + worker) % 2 == 0 {
                        say(&format!("going {number}"));
                        write(journal, Entry::SessionRemoved { session }).unwrap();
                        say(&format!("gone {number}"));
                    }
                }
            });
        }
    });
}

fn number_of(session: HexId) -> u32 {
    u32::from_str_radix(session.as_str(), 16).unwrap()
}

/// What the children said.
#[derive(Default)]
struct Told {
    /// Durable turns of each session that was begun.
    turns: BTreeMap<u32, u32>,
    going: BTreeSet<u32>,
    gone: BTreeSet<u32>,
}

impl Told {
    fn hear(&mut self, line: &str) {
        // The test harness has lines of its own, and one that was cut has no meaning.
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
        match (words[0], number(1), number(2)) {
            ("begun", Some(session), None) => {
                self.turns.insert(session, 0);
            }
            ("turn", Some(session), Some(turn)) => {
                self.turns.insert(session, turn + 1);
            }
            ("going", Some(session), None) => {
                self.going.insert(session);
            }
            ("gone", Some(session), None) => {
                self.gone.insert(session);
            }
            _ => {}
        }
    }
}

#[test]
fn kill_9_at_any_instant_costs_no_turn_and_doubles_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut dice = Dice(3);
    let mut told = Told::default();
    let mut turns_seen = 0;
    for round in 1..=15 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "journal::a_writer", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env(FIRST, (round * 10_000).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
        for _ in 0..5 + dice.roll(250) {
            match lines.next() {
                Some(line) => told.hear(&String::from_utf8(line.unwrap()).unwrap()),
                None => break,
            }
        }
        child.kill().unwrap();
        // What it had said before it was killed counts; the last line may be cut.
        let rest: Vec<String> = lines
            .map(|line| String::from_utf8(line.unwrap()).unwrap())
            .collect();
        for line in &rest[..rest.len().saturating_sub(1)] {
            told.hear(line);
        }
        child.wait().unwrap();
        let (journal, recovered) = open(&path);
        assert_eq!(recovered.damage, [""; 0]);
        let mut found = BTreeSet::new();
        for session in &recovered.sessions {
            let number = number_of(session.session);
            assert!(found.insert(number), "session {number} twice");
            assert!(!told.gone.contains(&number), "session {number} is back");
            assert_true_turns(session);
            assert!(session.sent.len() <= 1, "{:?}", session.sent);
            let durable = told.turns.get(&number).copied().unwrap_or(0);
            let there = u32::try_from(session.turns.len()).unwrap();
            // One more may have been written without anybody knowing it.
            assert!(
                there == durable || there == durable + 1,
                "session {number}: {durable} said, {there} there"
            );
            told.turns.insert(number, there);
            turns_seen += there;
        }
        for number in told.turns.keys() {
            let left = told.going.contains(number);
            assert!(found.contains(number) || left, "session {number} is lost");
        }
        journal.close();
    }
    assert!(turns_seen > 100, "{turns_seen}");
}
