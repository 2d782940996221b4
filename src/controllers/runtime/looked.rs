//! Which objects were looked at, by name: a deletion is told by the name alone, and what is remembered is by UID.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::queue::Key;

/// The UID that an object had at its last look.
#[derive(Debug, Default)]
pub struct Looked(Mutex<HashMap<Key, String>>);

impl Looked {
    /// An object is looked at. Answers the one of that name before it, which is gone.
    pub fn at(&self, key: Key, uid: &str) -> Option<String> {
        let before = self.0.lock().insert(key, uid.to_owned());
        before.filter(|before| before != uid)
    }

    /// There is no object of that name. Answers the one that was.
    pub fn gone(&self, key: &Key) -> Option<String> {
        self.0.lock().remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::Looked;

    #[test]
    fn who_is_gone_is_told_once() {
        let looked = Looked::default();
        let key = || ("rl".to_owned(), "job".to_owned());
        assert_eq!(looked.gone(&key()), None);
        assert_eq!(looked.at(key(), "u-1"), None);
        assert_eq!(looked.at(key(), "u-1"), None);
        assert_eq!(looked.at(key(), "u-2"), Some("u-1".to_owned()));
        assert_eq!(looked.gone(&key()), Some("u-2".to_owned()));
        assert_eq!(looked.gone(&key()), None);
    }
}
