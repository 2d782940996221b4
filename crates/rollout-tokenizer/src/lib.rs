//! Hugging Face tokenizers and chat templates, rendered as transformers renders them.
