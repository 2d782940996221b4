//! What an engine does, case by case: on the simulated engine always, and on a real SGLang when `ROLLOUT_SGLANG_URL` names one.
//!
//! A case is a function of an [`Engine`](engine::Engine), which is a base URL and a client; it does not know which one it talks to. That
//! the same cases hold on both is what makes the double believable. `tests/sglang/run.sh` installs the real one on the CPU, starts
//! it, and runs this. Under CI the real half must run: without the variable it fails.
//!
//! The real engine must be as `tests/sglang/launch.sh` starts it: the built-in tokenizer and chat template, 16 running requests, a context
//! of 4096 tokens. Nobody else may use it meanwhile.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a case that cannot go on fails"
)]

mod engine;
mod halves;
mod sse;

mod abort;
mod cache;
mod chat;
mod errors;
mod finish;
mod generation;
mod loads;
mod log_probs;
mod pause;
mod streams;
mod tokens;
mod weights;

/// Declares the cases: one test on the simulated engine and one on the real engine of each.
macro_rules! cases {
    ($($module:ident { $($case:ident,)+ })+) => {
        mod simulated_engine {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::halves::on_simulated_engine(crate::$module::$case).await;
                })+
            })+
        }

        mod real_engine {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::halves::on_real_engine(crate::$module::$case).await;
                })+
            })+
        }
    };
}

cases! {
    generation {
        ids_in_ids_out,
        greedy_decoding_is_repeatable,
        text_is_tokenized_and_detokenized_with_the_tokenizer,
        ids_win_over_text,
        prompt_ids_on_request,
        a_batch_keeps_its_order_and_numbers_its_rids,
        several_samples_of_one_prompt,
        equal_requests_are_sampled_apart,
        without_a_limit_128_tokens,
        unknown_fields_are_ignored,
    }
    log_probs {
        every_output_token_has_one,
        text_beside_them_on_request,
        the_greedy_token_is_the_most_likely,
        probabilities_sum_to_one,
        scoring_a_prompt_generates_nothing,
        scoring_agrees_with_generation,
        a_low_temperature_sharpens_them,
        chosen_token_ids,
    }
    finish {
        at_the_length,
        at_the_end_token,
        at_the_end_token_untrimmed,
        past_the_end_token_on_request,
        at_a_stop_token,
        at_a_stop_string,
        at_a_stop_string_untrimmed,
        at_a_stop_expression,
        not_before_the_least_length,
        within_a_schema,
        a_chat_names_its_stop,
    }
    cache {
        a_second_turn_finds_the_first,
        a_chat_finds_its_earlier_turns,
        an_equal_prompt_is_found_but_for_its_last_token,
        flushing_forgets,
        flushing_a_busy_engine_fails,
        flushing_can_wait,
        scoring_from_the_start_defeats_it,
        an_aborted_generation_is_resumed_from_it,
    }
    abort {
        a_running_request_keeps_what_it_has,
        a_queued_request_has_thin_counters,
        everything_at_once,
        of_an_unknown_rid_touches_nothing,
        of_a_prefix_takes_the_longer_rids_too,
        of_one_part_of_a_batch,
        a_chat,
        a_streamed_chat,
        of_a_paused_request_shows_after_the_pause,
        a_request_at_the_pause_gate_survives,
        a_rid_in_use_is_refused,
        a_rid_is_free_again_afterwards,
    }
    pause {
        aborting_ends_what_runs_and_holds_what_comes,
        in_place_goes_on_where_it_was,
        in_place_keeps_the_cache,
        retracting_computes_again,
        twice_is_once,
        health_is_lost_meanwhile,
        the_control_plane_answers_meanwhile,
        malformed_requests,
    }
    streams {
        generation_is_cumulative,
        generation_ends_like_without_a_stream,
        a_batch_tells_its_parts_apart,
        a_chat_adds_up,
        a_chat_with_log_probs,
        a_chat_with_ids,
        errors_arrive_in_the_stream,
        ids_are_refused_in_a_streamed_chat,
    }
    chat {
        prompts_are_rendered_and_tokenized_as_here,
        ids_and_log_probs_line_up,
        log_probs_have_text_and_bytes,
        given_ids_replace_the_prompt,
        usage_adds_up,
        the_model_name_is_echoed,
        an_assistant_message_at_the_end,
        an_assistant_message_to_continue,
        several_choices,
        completions_have_ids,
    }
    errors {
        of_generate,
        of_chat,
        of_the_template,
        of_routes,
        a_prompt_beyond_the_context,
        a_limit_beyond_the_context,
        of_rids,
    }
    tokens {
        of_a_text,
        of_messages,
        of_several_texts,
        back_to_text,
    }
    weights {
        a_new_version_is_in_every_answer,
        a_version_can_be_renamed,
        renaming_aborts_by_default,
        an_update_waits_for_what_runs,
        a_request_across_an_update_names_both,
        a_bad_path_changes_nothing,
    }
    loads {
        running_and_waiting_are_counted,
        memory_limits_what_runs,
        a_lost_client_frees_its_slot,
        a_lost_stream_frees_its_slot,
        identity_of_the_server,
        health_of_an_idle_engine,
    }
}
