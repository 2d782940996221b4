//! The prefix cache: a radix tree over tokens, as SGLang's with a page size of 1.
//!
//! Nodes on the path of a request in flight are locked. What is not locked may be evicted, least recently used first, leaves only.

use std::collections::{BTreeSet, HashMap};

pub(super) type NodeId = usize;

const ROOT: NodeId = 0;

#[derive(Debug, Default)]
struct Node {
    tokens: Vec<u32>,
    children: HashMap<u32, NodeId>,
    parent: NodeId,
    locks: u32,
    used: u64,
}

#[derive(Debug)]
pub(super) struct PrefixCache {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    tokens: usize,
    protected: usize,
    tick: u64,
    evictable: BTreeSet<(u64, NodeId)>,
}

impl Default for PrefixCache {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            free: Vec::new(),
            tokens: 0,
            protected: 0,
            tick: 0,
            evictable: BTreeSet::new(),
        }
    }
}

impl PrefixCache {
    /// Tokens in the tree.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Tokens that are locked.
    pub(super) fn protected(&self) -> usize {
        self.protected
    }

    /// The longest cached prefix, of at most `limit` tokens and never the whole prompt: the last token must be computed.
    pub(super) fn find(&mut self, prompt: &[u32], limit: usize) -> (usize, NodeId) {
        let limit = limit.min(prompt.len().saturating_sub(1));
        self.walk(ROOT, &prompt[..limit])
    }

    /// How much of a prompt is cached now; nothing is touched.
    pub(super) fn peek(&self, prompt: &[u32]) -> usize {
        let limit = prompt.len().saturating_sub(1);
        let (mut at, mut found) = (ROOT, 0);
        while found < limit {
            let Some(child) = self.nodes[at].children.get(&prompt[found]) else {
                break;
            };
            let tokens = &self.nodes[*child].tokens;
            let common = common_prefix(tokens, &prompt[found..limit]);
            found += common;
            if common < tokens.len() {
                break;
            }
            at = *child;
        }
        found
    }

    /// Adds a prompt and answers the node at its end.
    pub(super) fn insert_prompt(&mut self, prompt: &[u32]) -> NodeId {
        self.insert(ROOT, prompt)
    }

    /// Adds tokens below a node and answers the node at their end.
    pub(super) fn insert(&mut self, from: NodeId, tokens: &[u32]) -> NodeId {
        let (found, node) = self.walk(from, tokens);
        let rest = &tokens[found..];
        let Some(first) = rest.first() else {
            return node;
        };
        let leaf = self.allocate(Node {
            tokens: rest.to_vec(),
            parent: node,
            used: self.tick,
            ..Node::default()
        });
        self.nodes[node].children.insert(*first, leaf);
        self.evictable.remove(&(self.nodes[node].used, node));
        self.evictable.insert((self.tick, leaf));
        self.tokens += rest.len();
        leaf
    }

    /// Protects a node and everything above it.
    pub(super) fn lock(&mut self, node: NodeId) {
        self.each_above(node, |cache, id| {
            cache.nodes[id].locks += 1;
            if cache.nodes[id].locks == 1 {
                cache.protected += cache.nodes[id].tokens.len();
                cache.evictable.remove(&(cache.nodes[id].used, id));
            }
        });
    }

    /// Takes back one [`PrefixCache::lock`].
    pub(super) fn unlock(&mut self, node: NodeId) {
        self.each_above(node, |cache, id| {
            cache.nodes[id].locks -= 1;
            if cache.nodes[id].locks == 0 {
                cache.protected -= cache.nodes[id].tokens.len();
                if cache.nodes[id].children.is_empty() {
                    cache.evictable.insert((cache.nodes[id].used, id));
                }
            }
        });
    }

    /// Drops at least `count` tokens, as far as unlocked ones are there.
    pub(super) fn evict(&mut self, count: usize) {
        let goal = self.tokens.saturating_sub(count);
        while self.tokens > goal {
            let Some((_, id)) = self.evictable.pop_first() else {
                return;
            };
            let node = std::mem::take(&mut self.nodes[id]);
            self.tokens -= node.tokens.len();
            self.free.push(id);
            let parent = &mut self.nodes[node.parent];
            if let Some(first) = node.tokens.first() {
                parent.children.remove(first);
            }
            if node.parent != ROOT && parent.locks == 0 && parent.children.is_empty() {
                self.evictable.insert((parent.used, node.parent));
            }
        }
    }

    fn each_above(&mut self, node: NodeId, mut act: impl FnMut(&mut Self, NodeId)) {
        let mut id = node;
        while id != ROOT {
            let parent = self.nodes[id].parent;
            act(self, id);
            id = parent;
        }
    }

    /// Follows tokens from a node as far as they are cached, splitting a node that is left in its middle.
    fn walk(&mut self, from: NodeId, tokens: &[u32]) -> (usize, NodeId) {
        self.tick += 1;
        let (mut at, mut found) = (from, 0);
        self.touch(at);
        while let Some(child) = tokens
            .get(found)
            .and_then(|first| self.nodes[at].children.get(first).copied())
        {
            let common = common_prefix(&self.nodes[child].tokens, &tokens[found..]);
            found += common;
            at = if common < self.nodes[child].tokens.len() {
                self.split(child, common)
            } else {
                child
            };
            self.touch(at);
        }
        (found, at)
    }

    fn touch(&mut self, id: NodeId) {
        let old = (self.nodes[id].used, id);
        self.nodes[id].used = self.tick;
        if self.evictable.remove(&old) {
            self.evictable.insert((self.tick, id));
        }
    }

    /// Cuts a node in two and answers the upper half. The lower half keeps the id, so that locks by id still hold.
    fn split(&mut self, id: NodeId, at: usize) -> NodeId {
        let lower = self.nodes[id].tokens.split_off(at);
        let tokens = std::mem::replace(&mut self.nodes[id].tokens, lower);
        let (parent, locks, used) = (
            self.nodes[id].parent,
            self.nodes[id].locks,
            self.nodes[id].used,
        );
        let (upper_first, lower_first) = (tokens[0], self.nodes[id].tokens[0]);
        let upper = self.allocate(Node {
            tokens,
            children: HashMap::from([(lower_first, id)]),
            parent,
            locks,
            used,
        });
        self.nodes[parent].children.insert(upper_first, upper);
        self.nodes[id].parent = upper;
        upper
    }

    fn allocate(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            self.nodes[id] = node;
            return id;
        }
        self.nodes.push(node);
        self.nodes.len() - 1
    }
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
