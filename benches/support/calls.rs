//! Calls of a load generator that have to succeed.

use bytes::Bytes;
use serde_json::Value;

use crate::client::Connection;

impl Connection {
    /// A call that has to succeed.
    pub(crate) async fn ok(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Bytes,
    ) -> Bytes {
        let (status, answer) = self.call(method, path, headers, body).await.unwrap();
        assert!(
            status.is_success(),
            "{method} {path}: {status} {}",
            String::from_utf8_lossy(&answer[..answer.len().min(400)])
        );
        answer
    }

    /// A call with a JSON body and answer that has to succeed.
    pub(crate) async fn json(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let body = match body {
            Value::Null => Bytes::new(),
            body => Bytes::from(body.to_string()),
        };
        let answer = self.ok(method, path, &[], body).await;
        serde_json::from_slice(&answer).unwrap_or(Value::Null)
    }
}
