//! The name of a service behind which engines are.

use std::fmt;
use std::str::FromStr;

use super::EngineUrlError;

/// `HOST:PORT`; every address of the host is an engine that listens on the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineService {
    host: String,
    port: u16,
}

impl EngineService {
    /// The name to look up.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where its engines listen.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for EngineService {
    type Err = EngineUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem| EngineUrlError::Service {
            service: text.to_owned(),
            problem,
        };
        if text.contains("://") {
            return Err(invalid("is a URL: write HOST:PORT, without http://"));
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| invalid("has no port: write HOST:PORT"))?;
        if host.is_empty() || !host.bytes().all(is_of_name) {
            return Err(invalid("has no host name: write HOST:PORT"));
        }
        let port = port.parse().ok().filter(|port| *port > 0);
        Ok(Self {
            host: host.to_owned(),
            port: port.ok_or_else(|| invalid("the port is not a number from 1 to 65535"))?,
        })
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

impl fmt::Display for EngineService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::EngineService;

    #[test]
    fn a_service_is_a_name_and_a_port() {
        for name in ["qwen-engines.rl.svc.cluster.local.:30000", "localhost:1"] {
            let service: EngineService = name.parse().unwrap();
            assert_eq!(service.to_string(), name);
        }
        for (text, problem) in [
            ("http://engines:30000", "is a URL"),
            ("engines", "has no port"),
            (":30000", "has no host name"),
            ("engines/x:30000", "has no host name"),
            ("[::1]:30000", "has no host name"),
            ("engines:0", "the port"),
            ("engines:70000", "the port"),
            ("engines:http", "the port"),
        ] {
            let error = text.parse::<EngineService>().unwrap_err().to_string();
            let told = format!("engine service {text}: {problem}");
            assert!(error.starts_with(&told), "{error}");
        }
    }
}
