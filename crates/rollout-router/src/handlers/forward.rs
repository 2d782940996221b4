//! Work without a session: passed to the least loaded engine, the answer passed back frame by frame.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;

use crate::body::Body;
use crate::chat::Reply;
use crate::edit::Request;
use crate::edit::generate::{choices, elements, single_choice};
use crate::edit::rid::{Identified, batch_size, identify};
use crate::engines::{Engine, Line, SendError, read_reply};
use crate::error::ApiError;
use crate::flights::Scope;
use crate::headers::{self, ROLLOUT_ID, ROLLOUT_JOB, ROUTING_KEY};
use crate::id::HexId;
use crate::relay::{InFlight, Relay};
use crate::route::Forward;
use crate::state::Inner;

pub(crate) async fn forward(
    inner: &Arc<Inner>,
    route: Forward,
    parts: &Parts,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    if route == Forward::Models {
        return models(inner).await;
    }
    let scope = scope(&parts.headers)?;
    let headers = engine_headers(&parts.headers);
    let path = path_and_query(route, parts)?;
    let request = Request::read(&body)?;
    if route == Forward::Generate
        && let Some(n @ 2..) = choices(&request)
    {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        return several(inner, &scope, path, headers, &request, n).await;
    }
    let identified = identify(&request, route, HexId::random)?;
    let Identified { rids, body: edited } = identified;
    let body = edited.map_or_else(|| body.clone(), Bytes::from);
    let (response, line, flight) = send(inner, scope, path, headers, rids, body).await?;
    let (mut head, incoming) = response.into_parts();
    head.headers = headers::to_client(head.headers);
    let relay = Relay::new(incoming, &line, flight, inner.config.times.idle_body);
    inner.metrics.forwarded(route, head.status);
    Ok(Response::from_parts(head, Body::relay(relay)))
}

/// Whose request it is, by its headers.
fn scope(headers: &HeaderMap) -> Result<Scope, ApiError> {
    let text = |name: &HeaderName| -> Result<Option<&str>, ApiError> {
        let value = headers.get(name).map(HeaderValue::to_str).transpose();
        value.map_err(|_| ApiError::BadRequest(format!("{name} is not text")))
    };
    let job = text(&ROLLOUT_JOB)?;
    let rollout_id = text(&ROLLOUT_ID)?
        .map(str::parse)
        .transpose()
        .map_err(|_| ApiError::BadRequest("x-rollout-id must be an integer".to_owned()))?;
    Ok(Scope {
        job: job.map(Arc::from),
        rollout_id,
        session: None,
    })
}

fn engine_headers(client: &HeaderMap) -> HeaderMap {
    let mut headers = headers::to_engine(client);
    if let Some(key) = client.get(ROUTING_KEY) {
        headers.insert(ROUTING_KEY, key.clone());
    }
    headers
}

fn path_and_query(route: Forward, parts: &Parts) -> Result<PathAndQuery, ApiError> {
    match parts.uri.query() {
        None => Ok(PathAndQuery::from_static(route.path())),
        Some(query) => format!("{}?{query}", route.path())
            .parse()
            .map_err(|_| ApiError::BadRequest("the query is not valid".to_owned())),
    }
}

/// Sends a request to the least loaded engine; to another one only if nothing reached the first.
async fn send(
    inner: &Arc<Inner>,
    scope: Scope,
    path: PathAndQuery,
    headers: HeaderMap,
    rids: Vec<String>,
    body: Bytes,
) -> Result<(Response<Incoming>, Line, InFlight), ApiError> {
    let rids: Arc<[String]> = rids.into();
    let ticket = inner.flights.admit(scope)?;
    let mut flight = InFlight::new(ticket, inner.aborter.clone());
    let mut tried: Vec<Arc<Engine>> = Vec::new();
    let mut last = None;
    loop {
        let Some(place) = inner.engines.place(&tried) else {
            let reason = last.unwrap_or_else(|| inner.engines.why_none());
            return Err(ApiError::NoEngine(reason));
        };
        let engine = Arc::clone(place.engine());
        let line = Line::to(&engine);
        if let Some(ticket) = flight.ticket() {
            ticket.dispatch(place, &rids)?;
        }
        let answer = inner
            .upstream
            .generate(&engine, path.clone(), headers.clone(), body.clone());
        match line.unless_silent(answer).await? {
            Ok(response) => return Ok((response, line, flight)),
            Err(SendError::NotSent(reason)) => {
                if let Some(ticket) = flight.ticket() {
                    ticket.recall();
                }
                engine.note_failure();
                last = Some(format!("{engine}: {reason}"));
                tried.push(engine);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// SGLang renames the ids of a request with `n` > 1, so that nobody could abort it: it is sent as single requests, and the answers
/// are put together as SGLang orders them.
async fn several(
    inner: &Arc<Inner>,
    scope: &Scope,
    path: PathAndQuery,
    headers: HeaderMap,
    request: &Request<'_>,
    n: usize,
) -> Result<Response<Body>, ApiError> {
    const MOST: usize = 1_024;
    if n > MOST {
        return Err(ApiError::BadRequest(format!("n must be at most {MOST}")));
    }
    if request.is_true("stream") {
        return Err(ApiError::BadRequest(
            "n > 1 cannot be streamed: send n requests".to_owned(),
        ));
    }
    let single = single_choice(request);
    let single = Request::read(single.as_bytes())?;
    let is_batch = batch_size(&single, Forward::Generate).is_some();
    let calls = (0..n).map(|_| {
        let (path, headers) = (path.clone(), headers.clone());
        let without_rid = single.fields.rewrite(single.text, |key| key == "rid", "");
        async move {
            let request = Request::read(without_rid.as_bytes())?;
            let Identified { rids, body } = identify(&request, Forward::Generate, HexId::random)?;
            let body = Bytes::from(body.unwrap_or_default());
            let (response, line, mut flight) =
                send(inner, scope.clone(), path, headers, rids, body).await?;
            let (head, incoming) = response.into_parts();
            let (limit, idle) = (
                inner.config.limits.reply_bytes,
                inner.config.times.idle_body,
            );
            let body = read_reply(&line, incoming, limit, idle).await?;
            flight.ended();
            Ok::<_, ApiError>((head, body))
        }
    });
    let answers = try_join_all(calls).await?;
    if let Some((head, body)) = answers
        .iter()
        .find(|(head, _)| head.status != StatusCode::OK)
    {
        return Ok(Reply {
            status: head.status,
            headers: headers::to_client(head.headers.clone()),
            body: body.clone(),
        }
        .into_response());
    }
    let bodies: Vec<&str> = answers
        .iter()
        .map(|(_, body)| std::str::from_utf8(body).unwrap_or_default())
        .collect();
    let joined = join(&bodies, is_batch)?;
    inner.metrics.forwarded(Forward::Generate, StatusCode::OK);
    Ok(Reply::json(joined).into_response())
}

/// One list: all choices of the first prompt, then of the second.
fn join(bodies: &[&str], is_batch: bool) -> Result<String, ApiError> {
    let mut choices: Vec<Vec<&str>> = Vec::with_capacity(bodies.len());
    for body in bodies {
        if is_batch {
            let list = elements(body).map_err(|error| ApiError::BadReply(error.to_string()))?;
            choices.push(list);
        } else {
            choices.push(vec![body.trim()]);
        }
    }
    let prompts = choices.first().map_or(0, Vec::len);
    if choices.iter().any(|list| list.len() != prompts) {
        return Err(ApiError::BadReply(
            "the engine answered another number of prompts".to_owned(),
        ));
    }
    let ordered: Vec<&str> = (0..prompts)
        .flat_map(|prompt| choices.iter().map(move |list| list[prompt]))
        .collect();
    Ok(format!("[{}]", ordered.join(",")))
}

async fn models(inner: &Inner) -> Result<Response<Body>, ApiError> {
    let engine = inner
        .engines
        .pick(&[])
        .ok_or_else(|| ApiError::NoEngine(inner.engines.why_none()))?;
    let path = PathAndQuery::from_static("/v1/models");
    let (status, body) = inner
        .upstream
        .control(&engine, Method::GET, path, Bytes::new())
        .await?;
    let mut reply = Reply::json(body);
    reply.status = status;
    Ok(reply.into_response())
}
