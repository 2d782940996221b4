//! Bytes per stored token.

use rollout_session::{FinishReason, Forest, Generation, Shape, TurnContext};

use crate::resident::resident;

/// Turns of ids and log-probabilities, each of which repeats everything before it.
pub(crate) fn measure() {
    const FORESTS: u32 = 50;
    const TURNS: u32 = 100;
    const ADDED: u32 = 100;
    const OUTPUT: u32 = 100;
    let before = resident();
    let mut forests = Vec::new();
    for _ in 0..FORESTS {
        let mut forest = Forest::of_shape(Shape::Recorded, 0);
        let mut prompt: Vec<u32> = Vec::new();
        for turn in 0..TURNS {
            prompt.extend((0..ADDED).map(|id| id + turn));
            let generation = Generation {
                prompt_ids: prompt.clone(),
                output_ids: (0..OUTPUT).collect(),
                log_probs: vec![-0.5; OUTPUT as usize],
                finish: Some(FinishReason::Stop),
                ..Generation::default()
            };
            prompt.extend(&generation.output_ids);
            let context = TurnContext {
                messages: Some(1 + 2 * turn as usize),
                ..TurnContext::default()
            };
            forest.commit(0, generation, context).unwrap();
        }
        forests.push(forest);
    }
    let stored = f64::from(FORESTS * TURNS * (ADDED + OUTPUT));
    let outputs = f64::from(FORESTS * TURNS * OUTPUT);
    let counted: usize = forests.iter().map(Forest::heap_bytes).sum();
    let bytes = resident() - before;
    println!(
        "stored tokens: {:.1} bytes each, half of them with a log-probability ({:.1} counted), everything of {TURNS} turns included",
        bytes / stored,
        f64::from(u32::try_from(counted).unwrap()) / stored
    );
    println!(
        "an output id with its log-probability: at most {:.1} bytes",
        (bytes - (stored - outputs) * 4.0) / outputs
    );
}
