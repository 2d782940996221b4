//! Arguments of a bench, and the runtime of two workers that it measures on.

/// What was asked for, without what cargo adds.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect()
}

/// Runs `measure` with the part that was asked for, the first argument; none means all.
pub(crate) fn run(measure: impl AsyncFnOnce(Option<&str>)) {
    let arguments = arguments();
    let part = arguments.first().map(String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(part));
}
