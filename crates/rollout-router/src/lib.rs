//! The session router in front of the SGLang engines of one pool.
