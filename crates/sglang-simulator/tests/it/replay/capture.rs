//! Reading captures.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// One file.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) exchanges: Vec<Exchange>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Exchange {
    pub(crate) request: Value,
    pub(crate) response: Value,
}

#[derive(Deserialize)]
struct File {
    exchanges: Vec<Exchange>,
}

impl Capture {
    /// All files of a folder, by number.
    pub(crate) fn all(folder: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(folder).expect("the folder of captures");
        let mut captures: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "json")
                    && !path.ends_with("exceptions.json")
            })
            .map(|path| Self::load(&path))
            .collect();
        captures.sort_by_key(|capture| capture.number);
        captures
    }

    fn load(path: &Path) -> Self {
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("a name")
            .to_owned();
        let text = std::fs::read_to_string(path).expect("a readable capture");
        let mut file: File =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let folder = path.parent().expect("a folder");
        for exchange in &mut file.exchanges {
            expand(&mut exchange.request, folder);
            expand(&mut exchange.response, folder);
        }
        let number = name
            .split('-')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number");
        Self {
            number,
            name,
            exchanges: file.exchanges,
        }
    }

    /// The body of the first request.
    pub(crate) fn body(&self) -> Value {
        self.exchanges[0].request["body"].clone()
    }
}

/// Writes out repetitions and references.
fn expand(value: &mut Value, folder: &Path) {
    if let Some(times) = value.get("times").and_then(Value::as_u64) {
        let times = usize::try_from(times).expect("a count");
        *value = match &value["repeat"] {
            Value::String(text) => Value::from(text.repeat(times)),
            Value::Array(items) => {
                let repeated = (0..times).flat_map(|_| items.iter().cloned());
                Value::Array(repeated.collect())
            }
            other => panic!("{other} cannot be repeated"),
        };
    } else if let Some(file) = value.get("as").and_then(Value::as_str) {
        *value = Capture::load(&folder.join(file)).exchanges[0].response["body"].clone();
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| expand(item, folder)),
        Value::Object(fields) => fields.values_mut().for_each(|field| expand(field, folder)),
        _ => {}
    }
}
