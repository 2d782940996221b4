//! Whether a template wants a message's content as a string or as a list of parts; SGLang decides it by the template's text.

/// The two shapes of `content`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentFormat {
    /// The template prints the content: parts are flattened to a string.
    Text,
    /// The template iterates over the content: a list of parts stays one.
    Parts,
}

impl ContentFormat {
    /// `Parts` for a template that names a medium, or that has a loop over the content of `message`, `msg` or `m`.
    pub(crate) fn detect(source: &str) -> Self {
        const MEDIA: [&str; 4] = ["image", "audio", "video", "vision"];
        let iterates = || {
            source
                .split("{%")
                .skip(1)
                .filter_map(|tag| tag.split("%}").next())
                .any(loops_over_content)
        };
        if MEDIA.iter().any(|medium| source.contains(medium)) || iterates() {
            Self::Parts
        } else {
            Self::Text
        }
    }
}

/// Whether the inside of a tag reads `for x in message.content`, subscripts, filters and slices included.
fn loops_over_content(tag: &str) -> bool {
    let tag = tag.trim_matches(|c: char| matches!(c, '-' | '+') || c.is_whitespace());
    let Some((_, iterated)) = tag
        .strip_prefix("for")
        .filter(|rest| rest.starts_with(char::is_whitespace))
        .and_then(|rest| rest.split_once(" in "))
    else {
        return false;
    };
    let iterated: String = iterated.chars().filter(|c| !c.is_whitespace()).collect();
    ["message", "msg", "m"].iter().any(|name| {
        [".content", "['content']", "[\"content\"]"]
            .iter()
            .any(|access| {
                iterated
                    .strip_prefix(name)
                    .and_then(|rest| rest.strip_prefix(access))
                    .is_some_and(|rest| {
                        !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
                    })
            })
    })
}
