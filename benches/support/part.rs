//! Which part of a bench to run: the first argument, on a runtime of two workers.

/// Runs `measure` with the part that was asked for; none means all.
pub(crate) fn run(measure: impl AsyncFnOnce(Option<&str>)) {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let part = arguments.first().map(String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(part));
}
