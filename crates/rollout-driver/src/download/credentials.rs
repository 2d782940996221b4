//! What a server is shown: the keys of a Secret.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use super::DownloadError;

/// The keys of a Secret for http: a bearer token.
const TOKEN: &str = "token";
/// A name, as in Secrets of the type `kubernetes.io/basic-auth`.
const USERNAME: &str = "username";
/// And its password.
const PASSWORD: &str = "password";

/// A value of the header `authorization`. It is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(HeaderValue);

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials")
    }
}

impl Credentials {
    /// From the keys of a Secret: `token`, or `username` and `password`. Line breaks at the end of a value are left out: files have them.
    ///
    /// # Errors
    /// None of these keys is there, both kinds are, or a value cannot be in a header.
    pub fn from_keys(keys: &BTreeMap<String, Vec<u8>>) -> Result<Self, DownloadError> {
        let refuse = |problem: String| DownloadError::Credentials { problem };
        let text = |key: &str| {
            keys.get(key)
                .map(|value| {
                    let text = std::str::from_utf8(value);
                    let text = text.map_err(|_| refuse(format!("the key {key} is not text")))?;
                    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
                })
                .transpose()
        };
        let (token, name, password) = (text(TOKEN)?, text(USERNAME)?, text(PASSWORD)?);
        let value = match (token, name, password) {
            (Some(token), None, None) => format!("Bearer {token}"),
            (None, Some(name), Some(password)) => {
                format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
            }
            (Some(_), _, _) => {
                return Err(refuse(
                    "the Secret has token, and username or password as well: leave one of them out"
                        .to_owned(),
                ));
            }
            _ => {
                let there: Vec<&str> = keys.keys().map(String::as_str).collect();
                let problem = format!(
                    "a Secret for http and https has the key token, or the keys username and password; this one has: {}",
                    there.join(", ")
                );
                return Err(refuse(problem));
            }
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| refuse("a value has characters that no header can have".to_owned()))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The same from a directory that a Secret is mounted at: a file for each key.
    ///
    /// # Errors
    /// As [`Self::from_keys`], or a file cannot be read.
    pub fn read(directory: &Path) -> Result<Self, DownloadError> {
        let failed = |error: std::io::Error| DownloadError::Credentials {
            problem: format!("{}: {error}", directory.display()),
        };
        let mut keys = BTreeMap::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // The kubelet's own: keys are links into directories whose names begin with two dots.
            if name.starts_with("..") || entry.path().is_dir() {
                continue;
            }
            keys.insert(name, std::fs::read(entry.path()).map_err(failed)?);
        }
        Self::from_keys(&keys)
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[(&str, &str)]) -> Result<String, String> {
        let keys = keys
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        let made = Credentials::from_keys(&keys.collect());
        made.map(|made| made.header().to_str().unwrap().to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_or_a_name_with_a_password_and_nothing_in_between() {
        assert_eq!(of(&[("token", "abc\n")]).unwrap(), "Bearer abc");
        // RFC 7617, section 2.
        assert_eq!(
            of(&[("username", "Aladdin"), ("password", "open sesame")]).unwrap(),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        );
        let none = of(&[("TOKEN", "abc"), ("username", "a")]).unwrap_err();
        assert!(none.ends_with("this one has: TOKEN, username"), "{none}");
        let both = of(&[("token", "a"), ("username", "b"), ("password", "c")]).unwrap_err();
        assert!(both.contains("leave one of them out"), "{both}");
        let split = of(&[("token", "a\nb")]).unwrap_err();
        assert!(split.contains("no header can have"), "{split}");
        assert!(!split.contains("a\nb"));
    }

    #[test]
    fn a_mounted_secret_has_a_file_for_each_key_and_directories_of_the_kubelet() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("..2026_11_30");
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("token"), "abc").unwrap();
        std::os::unix::fs::symlink(&data, home.path().join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/token", home.path().join("token")).unwrap();
        let read = Credentials::read(home.path()).unwrap();
        assert_eq!(read.header(), "Bearer abc");
        let absent = Credentials::read(&home.path().join("absent")).unwrap_err();
        assert!(
            absent.to_string().contains("absent: No such file"),
            "{absent}"
        );
    }
}
