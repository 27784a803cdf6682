/* SPDX-License-Identifier: Apache-2.0 */
/* What include/vocabpipe/c/vocabpipe.h promises, from C99. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vocabpipe/c/vocabpipe.h"

static int failed = 0;

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            printf("FAILED: line %d: %s (%s)\n", __LINE__, #condition, vp_last_error()); \
            ++failed;                                                       \
        }                                                                   \
    } while (0)

/* The call is refused, and its line says `part`. */
#define REFUSED(call, status, part)                                                             \
    do {                                                                                        \
        const vp_status given = (call);                                                         \
        if (given != (status) || strstr(vp_last_error(), part) == NULL) {                       \
            printf("FAILED: line %d: status %d, \"%s\"\n", __LINE__, given, vp_last_error());   \
            ++failed;                                                                           \
        }                                                                                       \
    } while (0)

static vp_schedule_options one_barrier_of_four_ranks(void) {
    vp_schedule_options options = VP_SCHEDULE_OPTIONS;
    options.name = "1f1b";
    options.ranks = 4;
    options.microbatches = 8;
    options.vocab_mode = "one_barrier";
    return options;
}

static void schedules_are_made_read_and_printed(void) {
    vp_schedule_options options = one_barrier_of_four_ranks();
    vp_schedule* made = NULL;
    CHECK(vp_schedule_make(&options, NULL, &made) == VP_OK);
    CHECK(vp_schedule_ranks(made) == 4 && vp_schedule_stages(made) == 4);
    CHECK(vp_schedule_microbatches(made) == 8);
    CHECK(vp_schedule_rank_of_stage(made, 2) == 2 && vp_schedule_rank_of_stage(made, 4) == -1);
    vp_pass passes[64];
    CHECK(vp_schedule_passes(made, 3, passes, 64) == 8 * 6);
    CHECK(passes[0].op == 'E' && passes[0].microbatch == 0);
    CHECK(vp_schedule_passes(made, 3, NULL, 0) == 8 * 6);
    CHECK(vp_schedule_passes(made, 4, passes, 64) == 0);

    char* text = NULL;
    vp_schedule* read = NULL;
    CHECK(vp_schedule_print(made, "json", &text) == VP_OK);
    CHECK(vp_schedule_parse(text, "json", &read) == VP_OK);
    vp_pass again[64];
    CHECK(vp_schedule_passes(read, 3, again, 64) == 48 && memcmp(passes, again, 48 * sizeof *passes) == 0);
    vp_free_text(text);
    REFUSED(vp_schedule_print(made, "lowered", &text), VP_USAGE, "");
    REFUSED(vp_schedule_parse("{", "json", &read), VP_INPUT_FILE, "text");
    vp_schedule_free(read);
    vp_schedule_free(made);
}

static void rules_take_their_options(void) {
    vp_costs costs = VP_COSTS;
    costs.forward = 100;
    costs.backward = 200;
    costs.vocabulary = 30;
    vp_schedule_options options = one_barrier_of_four_ranks();
    vp_schedule* made = NULL;
    vp_pass passes[48];
    CHECK(vp_schedule_make(&options, &costs, &made) == VP_OK);
    CHECK(vp_schedule_passes(made, 1, passes, 48) == 48 && passes[14].op == 'B');
    vp_schedule_free(made);
    options.broadcast_margin = 3; /* the order of a backward of 197: E5 comes before the first B */
    CHECK(vp_schedule_make(&options, &costs, &made) == VP_OK);
    CHECK(vp_schedule_passes(made, 1, passes, 48) == 48 && passes[14].op == 'E' && passes[15].op == 'B');
    vp_schedule_free(made);
    options.broadcast_margin = INT64_MAX;
    CHECK(vp_schedule_make(&options, &costs, &made) == VP_OK);
    vp_schedule_free(made);
    options.broadcast_margin = -1;
    REFUSED(vp_schedule_make(&options, &costs, &made), VP_USAGE, "broadcast_margin -1: must be at least 0");

    options.broadcast_margin = 0;
    options.vocab_mode = NULL;
    options.overlap_pairs = 1;
    CHECK(vp_schedule_make(&options, &costs, &made) == VP_OK);
    const size_t count = vp_schedule_passes(made, 3, passes, 48);
    size_t pairs = 0, index;
    for (index = 0; index + 1 < count; ++index) {
        if (!passes[index].with_next) continue;
        ++pairs;
        CHECK(passes[index].op == 'B' && passes[index + 1].op == 'F');
    }
    CHECK(pairs == 7); /* all but the first F and the last B */
    vp_schedule_free(made);
}

static void lists_of_ones_own_are_proved_and_get_their_vocabulary(void) {
    const vp_pass first[] = {{'F', 0, 0, 0}, {'B', 0, 0, 0}};
    const vp_pass last[] = {{'F', 0, 1, 0}, {'B', 0, 1, 0}};
    const vp_pass wrong[] = {{'B', 0, 1, 0}, {'F', 0, 1, 0}};
    const vp_pass unknown[] = {{'X', 0, 1, 0}};
    const size_t counts[] = {2, 2};
    const vp_pass* lists[] = {first, last};
    vp_schedule* base = NULL;
    vp_schedule* made = NULL;
    CHECK(vp_schedule_from_passes(2, lists, counts, 0, NULL, &base) == VP_OK);
    CHECK(vp_schedule_insert_vocabulary(base, "two_barriers", 1000, NULL, &made) == VP_OK);
    CHECK(vp_schedule_passes(made, 0, NULL, 0) == 6);
    REFUSED(vp_schedule_insert_vocabulary(made, "none", 1000, NULL, &base), VP_USAGE,
            "has vocabulary passes already");
    vp_schedule_free(made);
    vp_schedule_free(base);
    base = NULL;
    lists[1] = wrong;
    REFUSED(vp_schedule_from_passes(2, lists, counts, 0, NULL, &base), VP_USAGE, "rank 1, position 0, 1B0");
    CHECK(base == NULL);
    lists[1] = unknown;
    REFUSED(vp_schedule_from_passes(2, lists, counts, 0, NULL, &base), VP_USAGE, "op X: must be one of F, B");
    REFUSED(vp_schedule_from_passes(0, lists, counts, 0, NULL, &base), VP_USAGE, "ranks 0");
    REFUSED(vp_schedule_from_passes(2, NULL, counts, 0, NULL, &base), VP_USAGE, "passes: is NULL");
}

static void steps_are_simulated_and_explained(void) {
    vp_costs costs = VP_COSTS;
    costs.forward = 12;
    costs.backward = 24;
    costs.vocabulary = 6;
    costs.latency = 1;
    vp_schedule_options options = one_barrier_of_four_ranks();
    vp_schedule* schedule = NULL;
    vp_timeline* step = NULL;
    CHECK(vp_schedule_make(&options, &costs, &schedule) == VP_OK);
    CHECK(vp_simulate(schedule, &costs, NULL, &step) == VP_OK);
    vp_step_summary summary = VP_STEP_SUMMARY;
    CHECK(vp_timeline_summary(step, &summary) == VP_OK);
    CHECK(summary.step == 516 && summary.ranks == 4 && !summary.in_ns); /* docs/python.md has the same */
    CHECK(summary.bubble > 0.2 && summary.bubble < 0.22);
    vp_rank_summary rank = VP_RANK_SUMMARY;
    CHECK(vp_timeline_rank(step, 3, &rank) == VP_OK);
    CHECK(rank.busy > 8 * (12 + 24 + 2 * 6) && rank.busy < 516 && rank.peak_bytes > 0);
    REFUSED(vp_timeline_rank(step, 4, &rank), VP_USAGE, "rank 4: must be from 0 to 3");
    double busy = 0;
    size_t index;
    for (index = 0; index < summary.spans; ++index) {
        vp_span span = VP_SPAN;
        CHECK(vp_timeline_span(step, index, &span) == VP_OK);
        if (span.rank == 3 && strcmp(span.name, "3F") == 0) busy += span.end - span.begin;
    }
    CHECK(busy == 8 * 12);
    char* text = NULL;
    CHECK(vp_timeline_explain(step, -1, 0, &text) == VP_OK && strstr(text, "critical path") != NULL);
    vp_free_text(text);
    CHECK(vp_timeline_explain(step, 3, 25, &text) == VP_OK && strstr(text, "rank 3 is idle") != NULL);
    vp_free_text(text);
    REFUSED(vp_timeline_explain(step, 3, 1e6, &text), VP_USAGE, "must be within the step");
    CHECK(vp_timeline_page(step, &text) == VP_OK && strncmp(text, "<!DOCTYPE html>", 15) == 0);
    vp_free_text(text);
    vp_timeline_free(step);
    vp_schedule_free(schedule);
    REFUSED(vp_timeline_read("no-such-file.json", &step), VP_INPUT_FILE, "no-such-file.json");
}

static void plans_have_rows_best_first(void) {
    vp_plan_options options = VP_PLAN_OPTIONS;
    options.model = "llama-3-8b";
    options.gpu = "h100";
    options.gpus = 8;
    options.global_batch_size = 32;
    options.seq_length = 2048;
    options.schedules = "1f1b,v-half";
    vp_plan* plan = NULL;
    CHECK(vp_plan_make(&options, &plan) == VP_OK);
    CHECK(vp_plan_rows(plan) > 5);
    int64_t before = 0;
    size_t index;
    for (index = 0; index < 5; ++index) {
        vp_plan_row row = VP_PLAN_ROW;
        CHECK(vp_plan_get_row(plan, index, &row) == VP_OK);
        CHECK(row.step_ns >= before && row.pipeline == 8 && row.spare_bytes > 0);
        before = row.step_ns;
    }
    char* text = NULL;
    CHECK(vp_plan_command(plan, 0, &text) == VP_OK && strncmp(text, "mpirun -np 8", 12) == 0);
    vp_free_text(text);
    CHECK(vp_plan_json(plan, &text) == VP_OK && text[0] == '{');
    vp_free_text(text);
    vp_plan_row row = VP_PLAN_ROW;
    REFUSED(vp_plan_get_row(plan, 100000, &row), VP_USAGE, "row 100000: the plan has");
    vp_plan_free(plan);
    options.overlap_pairs = 1;
    CHECK(vp_plan_make(&options, &plan) == VP_OK);
    for (index = 0; index < vp_plan_rows(plan); ++index) {
        CHECK(vp_plan_get_row(plan, index, &row) == VP_OK);
        CHECK(row.overlap_pairs == (strcmp(row.schedule, "1f1b") == 0));
    }
    vp_plan_free(plan);
    options.schedules = "v-half";
    REFUSED(vp_plan_make(&options, &plan), VP_USAGE, "overlap_pairs: no candidate can have pairs");
    options.schedules = "1f1b,v-half";
    options.overlap_pairs = 0;
    options.pipeline = "4,x";
    REFUSED(vp_plan_make(&options, &plan), VP_USAGE, "pipeline 4,x: must be numbers");
    options.pipeline = NULL;
    options.gpu = NULL;
    REFUSED(vp_plan_make(&options, &plan), VP_USAGE, "gpu: is required");
}

/* A program that was compiled with an earlier header has shorter structs. */
static void shorter_structs_of_earlier_versions_are_taken_and_longer_ones_refused(void) {
    vp_schedule_options options = VP_SCHEDULE_OPTIONS;
    options.name = "gpipe";
    options.ranks = 2;
    options.microbatches = 2;
    options.chunks = 77; /* behind the end of the shorter struct */
    options.size = offsetof(vp_schedule_options, chunks);
    vp_schedule* schedule = NULL;
    CHECK(vp_schedule_make(&options, NULL, &schedule) == VP_OK);
    vp_schedule_free(schedule);
    options.size = sizeof options + 8;
    REFUSED(vp_schedule_make(&options, NULL, &schedule), VP_USAGE, "options size");
    options.size = 0;
    REFUSED(vp_schedule_make(&options, NULL, &schedule), VP_USAGE, "options size 0");
    REFUSED(vp_schedule_make(NULL, NULL, &schedule), VP_USAGE, "options: is NULL");
    options.size = sizeof options;
    options.chunks = 77;
    REFUSED(vp_schedule_make(&options, NULL, &schedule), VP_USAGE, "chunks 77: does not match gpipe");
    vp_schedule_free(NULL);
    vp_timeline_free(NULL);
    vp_plan_free(NULL);
    vp_free_text(NULL);
}

int main(void) {
    CHECK(strcmp(vp_last_error(), "") == 0);
    CHECK(strstr(vp_families(), "zb-v\n") != NULL);
    schedules_are_made_read_and_printed();
    rules_take_their_options();
    lists_of_ones_own_are_proved_and_get_their_vocabulary();
    steps_are_simulated_and_explained();
    plans_have_rows_best_first();
    shorter_structs_of_earlier_versions_are_taken_and_longer_ones_refused();
    printf("version %s: %d failed\n", vp_version(), failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
