//! Wire types and HTTP client of the SGLang server.
