//! Replay rows of a sample: one row of 32-bit integers for each token but the last.
//!
//! With *full* rows each turn has those of the whole conversation: the last turn's are the sample's. With *additional* rows each turn
//! begins where the one before ended, and the sample's are put together (Miles, in-place weight updates). Rows are only counted here;
//! they stay the bytes that the engine sent.

use super::merge::{PlannedSample, Shortened};
use super::{CollectOptions, RoutedExperts};
use crate::forest::{Forest, Replay, TurnId};
use crate::sample::{ReplayRows, SampleStatus};

const VALUE: usize = size_of::<i32>();

/// Rows of a turn that has those of the whole conversation: layers and values per layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Full {
    layers: usize,
    per_layer: usize,
}

/// What a turn's rows look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RowsOfTurn {
    experts: Option<Full>,
    indexer: Option<Full>,
}

/// Where a sample's rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    shape: [usize; 3],
    /// Turns, and how many bytes of each.
    parts: Vec<(TurnId, usize)>,
}

/// The rows of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SampleRows {
    pub(super) experts: Option<Planned>,
    pub(super) indexer: Option<Planned>,
}

impl RowsOfTurn {
    /// Looks at the rows of a turn.
    ///
    /// # Errors
    /// They do not fit the turn's tokens.
    pub(super) fn read(
        forest: &Forest,
        id: TurnId,
        options: &CollectOptions,
    ) -> Result<Self, String> {
        let experts = match options.routed_experts {
            Some(experts) if !experts.additional => {
                full(forest, id, Replay::RoutedExperts, Some(experts.layers))?
            }
            _ => None,
        };
        let indexer = if options.indexer_topk {
            let turn = forest.turn(id);
            let layers = turn.and_then(|turn| turn.generation.indexer_layers);
            full(forest, id, Replay::IndexerTopK, layers)?
        } else {
            None
        };
        Ok(Self { experts, indexer })
    }

    /// Whether there are rows wherever there were some before.
    pub(super) fn have_all_of(self, before: Self) -> bool {
        (self.experts.is_some() || before.experts.is_none())
            && (self.indexer.is_some() || before.indexer.is_none())
    }
}

fn full(
    forest: &Forest,
    id: TurnId,
    replay: Replay,
    layers: Option<usize>,
) -> Result<Option<Full>, String> {
    let Some(bytes) = payload_len(forest, id, replay)? else {
        return Ok(None);
    };
    let layers = layers
        .filter(|layers| *layers > 0)
        .ok_or_else(|| format!("{} comes without its number of layers", replay.field()))?;
    let rows = forest
        .turn(id)
        .map_or(0, crate::Turn::total)
        .saturating_sub(1);
    let per_layer = values_per_layer(replay, bytes, rows, layers)?;
    Ok(Some(Full { layers, per_layer }))
}

fn payload_len(forest: &Forest, id: TurnId, replay: Replay) -> Result<Option<usize>, String> {
    forest
        .replay_len(id, replay)
        .map_err(|reason| format!("{} {reason}", replay.field()))
}

/// Values of a row per layer, from the size of a payload.
fn values_per_layer(
    replay: Replay,
    bytes: usize,
    rows: usize,
    layers: usize,
) -> Result<usize, String> {
    let values = bytes / VALUE;
    let fits = if rows == 0 {
        values == 0
    } else {
        values > 0 && values.is_multiple_of(rows * layers)
    };
    if fits {
        return Ok(values.checked_div(rows * layers).unwrap_or(0));
    }
    Err(format!(
        "{} has {values} values, which are not {rows} rows of {layers} layers",
        replay.field()
    ))
}

/// Finds the rows of a sample, and shortens it where they are missing.
pub(super) fn plan_rows(
    forest: &Forest,
    run: &[TurnId],
    sample: &mut PlannedSample,
    options: &CollectOptions,
    shortened: &mut Vec<Shortened>,
) {
    let additional = options.routed_experts.filter(|experts| experts.additional);
    if let Some(experts) = additional {
        let planned = additional_rows(forest, run, sample, experts, shortened);
        sample.rows.experts = planned;
    }
    let rows = sample.length(forest).saturating_sub(1);
    let Some(last) = sample.turns.last().map(|last| last.turn) else {
        return;
    };
    let of_last = RowsOfTurn::read(forest, last, options).unwrap_or_default();
    let whole = |full: Full| Planned {
        shape: shape(rows, full.layers, full.per_layer),
        parts: vec![(last, rows * full.layers * full.per_layer * VALUE)],
    };
    if additional.is_none() {
        sample.rows.experts = of_last.experts.map(whole);
    }
    sample.rows.indexer = of_last.indexer.map(whole);
}

fn shape(rows: usize, layers: usize, per_layer: usize) -> [usize; 3] {
    if rows == 0 {
        [0, layers, 0]
    } else {
        [rows, layers, per_layer]
    }
}

/// Puts additional rows together, from the first turn of the run on. A turn whose rows do not begin where those before end, or that has
/// none, is not in the sample.
fn additional_rows(
    forest: &Forest,
    run: &[TurnId],
    sample: &mut PlannedSample,
    experts: RoutedExperts,
    shortened: &mut Vec<Shortened>,
) -> Option<Planned> {
    let end = sample.first + sample.turns.len();
    let turns = run.get(..end)?;
    let has_rows = |id: &TurnId| !matches!(forest.replay_len(*id, Replay::RoutedExperts), Ok(None));
    if !turns.iter().any(has_rows) {
        return None;
    }
    let mut covered = 0;
    let mut per_layer = None;
    let mut parts = Vec::new();
    for (position, id) in turns.iter().enumerate() {
        match additional_part(forest, *id, position, covered, experts.layers, per_layer) {
            Ok(part) => {
                covered = part.end;
                per_layer = per_layer.or(part.per_layer);
                parts.push((*id, part.bytes));
            }
            Err(reason) => {
                shortened.push(Shortened::at(*id, reason));
                shorten(forest, sample, position);
                break;
            }
        }
    }
    if sample.turns.is_empty() {
        return None;
    }
    let rows = sample.length(forest).saturating_sub(1);
    let per_layer = per_layer.unwrap_or(0);
    let mut wanted = rows * experts.layers * per_layer * VALUE;
    for (_, bytes) in &mut parts {
        *bytes = (*bytes).min(wanted);
        wanted -= *bytes;
    }
    Some(Planned {
        shape: shape(rows, experts.layers, per_layer),
        parts,
    })
}

/// Leaves the turns from `position` of the run on out of a sample. Its last turn is then whole again.
fn shorten(forest: &Forest, sample: &mut PlannedSample, position: usize) {
    sample.turns.truncate(position.saturating_sub(sample.first));
    if let Some(last) = sample.turns.last_mut()
        && let Some(turn) = forest.turn(last.turn)
    {
        last.kept = turn.output_ids().len();
        // Only a turn that completed is followed by another.
        sample.status = SampleStatus::Completed;
    }
}

struct Part {
    end: usize,
    bytes: usize,
    per_layer: Option<usize>,
}

/// The additional rows of one turn. The texts are those of Miles's session server.
fn additional_part(
    forest: &Forest,
    id: TurnId,
    position: usize,
    covered: usize,
    layers: usize,
    per_layer: Option<usize>,
) -> Result<Part, String> {
    let replay = Replay::RoutedExperts;
    let turn = forest.turn(id);
    let problem = |text: String| format!("additional R3: record {position} {text}");
    let bytes = payload_len(forest, id, replay)
        .map_err(problem)?
        .ok_or_else(|| problem("has no routed_experts payload".to_owned()))?;
    let start = turn
        .and_then(|turn| turn.experts_start)
        .ok_or_else(|| problem("carries no routed_experts_start_len".to_owned()))?;
    if start != covered {
        return Err(problem(format!(
            "starts at row {start}; expected {covered}"
        )));
    }
    let end = turn.map_or(0, crate::Turn::total).saturating_sub(1);
    let Some(rows) = end.checked_sub(start) else {
        return Err(problem(format!(
            "ends at row {end}, before its start {start}"
        )));
    };
    if (rows == 0) != (bytes == 0) {
        return Err(problem(format!(
            "payload presence does not match {rows} rows"
        )));
    }
    if layers == 0 {
        return Err(problem("needs the model's number of layers".to_owned()));
    }
    let own = values_per_layer(replay, bytes, rows, layers).map_err(problem)?;
    let own = (rows > 0).then_some(own);
    if let (Some(own), Some(before)) = (own, per_layer)
        && own != before
    {
        return Err(problem(format!(
            "has {own} experts per layer; expected {before}"
        )));
    }
    Ok(Part {
        end,
        bytes,
        per_layer: own,
    })
}

impl Planned {
    /// The rows themselves: the only copy that is made of them.
    pub(super) fn assemble(&self, forest: &Forest, replay: Replay) -> ReplayRows {
        let [rows, layers, per_layer] = self.shape;
        let mut bytes = Vec::with_capacity(rows * layers * per_layer * VALUE);
        for (turn, length) in &self.parts {
            for piece in forest.replay_bytes(*turn, replay, *length) {
                bytes.extend_from_slice(piece);
            }
        }
        ReplayRows {
            shape: self.shape,
            bytes,
        }
    }
}
