//! How names are looked up.
//!
//! Caveat: a program that is linked to musl gets at most 48 addresses of a name (`MAXADDRS` in its `src/network/lookup.h`), and which
//! ones changes: a pool of more engines needs a build against glibc.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use super::EngineService;

/// The addresses behind a name, or why there are none.
pub(super) type Addresses = io::Result<Vec<SocketAddr>>;

type Lookup = Pin<Box<dyn Future<Output = Addresses> + Send>>;

/// Looks up the addresses of a service. Clones are the same one.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Fn(EngineService) -> Lookup + Send + Sync>);

impl Resolver {
    /// The resolver of the system, as `/etc/resolv.conf` and `/etc/hosts` have it.
    pub fn system() -> Self {
        Self::new(|service: EngineService| async move {
            let addresses = tokio::net::lookup_host((service.host(), service.port())).await?;
            Ok(addresses.collect())
        })
    }

    /// Another one.
    pub fn new<F, L>(lookup: F) -> Self
    where
        F: Fn(EngineService) -> L + Send + Sync + 'static,
        L: Future<Output = Addresses> + Send + 'static,
    {
        Self(Arc::new(move |service| Box::pin(lookup(service))))
    }

    pub(super) fn lookup(&self, service: &EngineService) -> Lookup {
        (self.0)(service.clone())
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resolver")
    }
}

#[cfg(test)]
mod tests {
    use super::Resolver;

    #[tokio::test]
    async fn the_system_knows_this_machine() {
        let service = "localhost:30000".parse().unwrap();
        let found = Resolver::system().lookup(&service).await.unwrap();
        assert!(found.iter().any(|address| address.ip().is_loopback()));
        assert!(found.iter().all(|address| address.port() == 30_000));
    }
}
