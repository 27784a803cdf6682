/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules, simulation, explanations and plans for programs in any language (docs/c-interface.md).
 *
 * A function that can fail returns VP_OK or why it failed; vp_last_error() then has one line that
 * names the argument, its value, the limit and the remedy, for the thread that called. Handles are
 * freed by the function of their type, texts by vp_free_text(); NULL is allowed there. What a
 * handle returns by pointer lives as long as the handle. A handle may be read by several threads at
 * once.
 *
 * Structs begin with their size, so that later versions can add members at the end: zero a struct
 * and set its size, or initialise it with its macro. A member that is 0 or NULL has its default. */
#ifndef VOCABPIPE_C_VOCABPIPE_H
#define VOCABPIPE_C_VOCABPIPE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define VP_API __attribute__((visibility("default")))
#else
#define VP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The exit codes of the project's programs (docs/errors.md). */
typedef enum vp_status {
    VP_OK = 0,
    VP_FAILED = 1,     /* an output file cannot be written, or an error of the library itself */
    VP_USAGE = 2,      /* an argument, or a combination of them, that cannot work */
    VP_INPUT_FILE = 3, /* a file or a text that is missing, corrupt or does not fit */
    VP_OUT_OF_MEMORY = 4
} vp_status;

/* "0.1.0". */
VP_API const char* vp_version(void);
/* Why the last call of this thread that failed did so; "" if none did. Lives until the next
 * failure. */
VP_API const char* vp_last_error(void);
/* Frees a text that a function made. */
VP_API void vp_free_text(char* text);

/* ---- Costs ---- */

/* What passes and messages cost, in figures, and the sizes of the model for its memory. */
typedef struct vp_costs {
    size_t size;
    /* F and B of an average rank's layers, and S and T of an even share of the vocabulary, in any
     * unit. 0, 0, 0: FLOPs of a GPT of the sizes below, of which F of a layer costs 12. vocabulary
     * 0: forward / 3; -1: nothing. */
    int64_t forward;
    int64_t backward;
    int64_t vocabulary;
    int64_t latency;          /* of every message */
    int64_t hop;              /* of a boundary to the next rank, on top of it */
    int64_t num_layers;       /* of the model; default: 96 without figures, else one per rank */
    int64_t hidden_size;      /* default: 12288 without figures, else 4096 */
    int64_t seq_length;       /* tokens; default: 2048 */
    int64_t micro_batch_size; /* sequences; default: 1 */
    /* Times in nanoseconds in place of figures: lines rank,op,stage,ns below one that says so. */
    const char* pass_times;
} vp_costs;
#define VP_COSTS \
    { sizeof(vp_costs), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL }

/* ---- Schedules ---- */

typedef struct vp_schedule vp_schedule;

/* One pass of a rank's list. */
typedef struct vp_pass {
    char op;             /* F B I W R of a stage; E G S T of the rank's share of the vocabulary */
    char with_next;      /* 1: this pass and the next one are an overlapped pair */
    uint16_t stage;      /* 0 for E G S T */
    uint32_t microbatch; /* from 0 */
} vp_pass;

/* How to make a schedule of a family. */
typedef struct vp_schedule_options {
    size_t size;
    const char* name;     /* of the family: "1f1b", "zb-v", ... (vp_families()) */
    int32_t ranks;        /* p */
    int32_t microbatches; /* of one step */
    const char*
        vocab_mode;     /* none (default), redistributed, interlaced, one_barrier, two_barriers */
    int64_t vocab_size; /* rows; default: those of the model that the costs are of */
    const char* recompute; /* none (default), selective, full */
    int32_t forward_only;  /* 1: evaluation */
    /* Parameters of rules; 0: the family's own. */
    int32_t chunks;
    int32_t warm_up_depth;
    int32_t group_size;
    int32_t memory_limit;
    int64_t search_moves;
    int64_t broadcast_margin; /* in the unit of the costs */
    int32_t overlap_pairs;    /* 1: a backward and the forward behind it are an overlapped pair */
} vp_schedule_options;
#define VP_SCHEDULE_OPTIONS \
    { sizeof(vp_schedule_options), NULL, 0, 0, NULL, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Names of the families, one per line; static. */
VP_API const char* vp_families(void);
/* The schedule of a family; its order is made for `costs` (NULL: the default ones). */
VP_API vp_status vp_schedule_make(const vp_schedule_options* options, const vp_costs* costs,
                                  vp_schedule** schedule);
/* A schedule of your own: rank r runs passes[r][0] to passes[r][counts[r] - 1]. It is proved:
 * VP_USAGE names rank, position and pass that cannot run. vocab_size and barriers ("in_line",
 * "one", "two") are for lists that have E, G, S, T; else 0 and NULL. */
VP_API vp_status vp_schedule_from_passes(int32_t ranks, const vp_pass* const* passes,
                                         const size_t* counts, int64_t vocab_size,
                                         const char* barriers, vp_schedule** schedule);
/* `base`, which has none, with the passes of the vocabulary. */
VP_API vp_status vp_schedule_insert_vocabulary(const vp_schedule* base, const char* vocab_mode,
                                               int64_t vocab_size, const vp_costs* costs,
                                               vp_schedule** schedule);
/* A schedule from a text: format "json", or "new", "old", "auto", "vocabpipe" for CSV. */
VP_API vp_status vp_schedule_parse(const char* text, const char* format, vp_schedule** schedule);
/* The text of a schedule: format "json", "new", "lowered" (for PyTorch, with communication), ... */
VP_API vp_status vp_schedule_print(const vp_schedule* schedule, const char* format, char** text);
VP_API void vp_schedule_free(vp_schedule* schedule);

VP_API int32_t vp_schedule_ranks(const vp_schedule* schedule);
VP_API int32_t vp_schedule_stages(const vp_schedule* schedule);
VP_API int32_t vp_schedule_microbatches(const vp_schedule* schedule);
/* The rank of a stage; -1 if there is no such stage. */
VP_API int32_t vp_schedule_rank_of_stage(const vp_schedule* schedule, int32_t stage);
/* Copies up to `room` passes of the rank and returns how many it has; 0 for no such rank. */
VP_API size_t vp_schedule_passes(const vp_schedule* schedule, int32_t rank, vp_pass* passes,
                                 size_t room);

/* ---- Simulated and recorded steps ---- */

typedef struct vp_timeline vp_timeline;

typedef struct vp_simulate_options {
    size_t size;
    int32_t no_optimizer_barrier; /* 1: the optimizer step does not wait for every rank */
    int32_t cores;                /* that all ranks share; default: each has its own */
    int32_t receive_ahead;        /* passes; default: as early as it pays */
    int32_t tile_pieces;          /* of boundaries; default: what is fastest */
} vp_simulate_options;
#define VP_SIMULATE_OPTIONS \
    { sizeof(vp_simulate_options), 0, 0, 0, 0 }

/* Times in the unit of the costs, or in nanoseconds. */
typedef struct vp_step_summary {
    size_t size;
    int32_t ranks;
    int32_t in_ns;   /* 1: nanoseconds */
    double makespan; /* first begin to last end */
    double step;     /* what a step takes among others */
    double bubble;   /* share of the makespan in which ranks are idle, their mean */
    size_t spans;    /* vp_timeline_span() */
} vp_step_summary;
#define VP_STEP_SUMMARY \
    { sizeof(vp_step_summary), 0, 0, 0, 0, 0, 0 }

typedef struct vp_rank_summary {
    size_t size;
    double busy;        /* in passes and local work */
    double span;        /* first begin to last end */
    double bubble;      /* 1 - busy / makespan */
    int64_t peak_bytes; /* of memory; -1: not known of recorded steps */
} vp_rank_summary;
#define VP_RANK_SUMMARY \
    { sizeof(vp_rank_summary), 0, 0, 0, 0 }

typedef struct vp_span {
    size_t size;
    int32_t rank;
    int32_t microbatch; /* -1: of none */
    const char* name;   /* "2F": of stage 2; "S", "send to rank 1 ..." */
    const char* lane;   /* compute, forward, backward, collective, local */
    double begin;
    double end;
} vp_span;
#define VP_SPAN \
    { sizeof(vp_span), 0, 0, NULL, NULL, 0, 0 }

/* Runs a schedule in simulated time, with messages and memory. costs, options: NULL for the
 * defaults. */
VP_API vp_status vp_simulate(const vp_schedule* schedule, const vp_costs* costs,
                             const vp_simulate_options* options, vp_timeline** timeline);
/* The step of a Chrome trace of train_gpt --trace-dir. */
VP_API vp_status vp_timeline_read(const char* path, vp_timeline** timeline);
VP_API void vp_timeline_free(vp_timeline* timeline);

VP_API vp_status vp_timeline_summary(const vp_timeline* timeline, vp_step_summary* summary);
VP_API vp_status vp_timeline_rank(const vp_timeline* timeline, int32_t rank,
                                  vp_rank_summary* summary);
VP_API vp_status vp_timeline_span(const vp_timeline* timeline, size_t index, vp_span* span);
/* Where the time went; with a rank (else -1) and a time, what it did then, or waited for. */
VP_API vp_status vp_timeline_explain(const vp_timeline* timeline, int32_t rank, double at,
                                     char** text);
/* The page of the step, HTML that loads nothing. */
VP_API vp_status vp_timeline_page(const vp_timeline* timeline, char** html);

/* ---- Plans ---- */

typedef struct vp_plan vp_plan;

/* What to plan. Lists are separated by commas, "1,2,4", and hold alternatives. */
typedef struct vp_plan_options {
    size_t size;
    const char* model;         /* built-in name, or Hugging Face config.json */
    const char* gpu;           /* built-in name, or hardware file */
    const char* profile;       /* of vocabpipe profile, in place of model, gpu and seq_length */
    int32_t gpus;              /* ranks */
    int32_t all_sizes;         /* 1: every size that is possible, of the lists that are NULL */
    int64_t global_batch_size; /* sequences per step */
    int64_t seq_length;        /* tokens */
    int64_t vocab_size;        /* rows; default: the model's */
    double memory_gib;         /* of a GPU; default: the device's */
    const char* tensor;
    const char* context;
    const char* pipeline;
    const char* data;
    const char* expert;
    const char* expert_tensor;
    const char* micro_batch_size;
    const char* recompute;
    const char* schedules;
    const char* vocab_modes;
    const char* chunks;
    int32_t overlap_pairs; /* 1: candidates that can have overlapped pairs have them */
} vp_plan_options;
#define VP_PLAN_OPTIONS                                                                            \
    {                                                                                              \
        sizeof(vp_plan_options), NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL, NULL, NULL, NULL, NULL, 0                                                  \
    }

typedef struct vp_plan_row {
    size_t size;
    const char* schedule;
    const char* vocab_mode;
    const char* recompute;
    int32_t chunks;
    int32_t pipeline;
    int32_t tensor;
    int32_t context;
    int32_t data;
    int32_t expert;
    int32_t expert_tensor;
    int32_t microbatches;
    int64_t micro_batch_size;
    int64_t step_ns;
    double tokens_per_second;
    double mfu;
    double bubble;
    int64_t total_bytes; /* of the rank that needs most memory */
    int64_t spare_bytes; /* negative: does not fit */
    int32_t overlap_pairs;
} vp_plan_row;
#define VP_PLAN_ROW \
    { sizeof(vp_plan_row), NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Predicts every candidate, best first. */
VP_API vp_status vp_plan_make(const vp_plan_options* options, vp_plan** plan);
VP_API void vp_plan_free(vp_plan* plan);
VP_API size_t vp_plan_rows(const vp_plan* plan);
VP_API vp_status vp_plan_get_row(const vp_plan* plan, size_t index, vp_plan_row* row);
/* The line that trains a row with train_gpt. */
VP_API vp_status vp_plan_command(const vp_plan* plan, size_t index, char** text);
/* All of it, as vocabpipe plan --json prints it. */
VP_API vp_status vp_plan_json(const vp_plan* plan, char** text);

#ifdef __cplusplus
}
#endif

#endif
