//! A simulated SGLang engine: the server's wire without a GPU.
